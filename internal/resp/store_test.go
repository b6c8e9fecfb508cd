package resp_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/internal/resp/blobtest"
	"github.com/kvstored/kvstored/tier"
)

type storeRig struct {
	*blobtest.Rig
	t *testing.T
	o ledger.Owner
}

func newStoreRig(t *testing.T, capacity int64) *storeRig {
	return &storeRig{Rig: blobtest.New(t, capacity), t: t}
}

func (r *storeRig) set(name string, value []byte, when resp.When, expires time.Time) bool {
	r.t.Helper()
	f, err := r.Begin(r.t.Context(), r.o, []byte(name), len(value))
	if err != nil {
		r.t.Fatal(err)
	}
	copy(f.Value(), value)
	stored, err := f.Store(r.t.Context(), when, expires)
	if err != nil {
		r.t.Fatal(err)
	}
	return stored
}

func (r *storeRig) want(name string, value []byte) {
	r.t.Helper()
	v, err := r.Get(r.t.Context(), r.o, []byte(name))
	if value == nil {
		if !errors.Is(err, resp.ErrNotFound) {
			r.t.Errorf("get %q: %v; want a miss", name, err)
		}
		return
	}
	if err != nil {
		r.t.Errorf("get %q: %v", name, err)
		return
	}
	if !bytes.Equal(v.Bytes(), value) {
		r.t.Errorf("get %q: %d bytes, and not those that were stored", name, len(v.Bytes()))
	}
	v.Release()
}

func TestStoreGetDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStoreRig(t, 32<<20)
		big := bytes.Repeat([]byte("0123456789abcde"), 100_000)
		names := []string{"", "a", "12345678", string(make([]byte, resp.MaxName))}
		for _, name := range names {
			for _, value := range [][]byte{big, {}, []byte("x")} {
				r.set(name, value, resp.Always, time.Time{})
				r.want(name, value)
			}
		}
		r.set("a", big, resp.Always, time.Time{})
		r.Restart()
		r.want("a", big)
		r.want("12345678", []byte("x"))
		if had, err := r.Delete(t.Context(), []byte("a")); !had || err != nil {
			t.Errorf("delete: %v, %v", had, err)
		}
		if had, err := r.Delete(t.Context(), []byte("a")); had || err != nil {
			t.Errorf("second delete: %v, %v", had, err)
		}
		r.want("a", nil)
		r.Restart()
		r.want("a", nil)
	})
}

func TestWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStoreRig(t, 16<<20)
		if r.set("a", []byte("1"), resp.Present, time.Time{}) {
			t.Error("stored over nothing")
		}
		if !r.set("a", []byte("2"), resp.Absent, time.Time{}) || r.set("a", []byte("3"), resp.Absent, time.Time{}) {
			t.Error("Absent is not what it says")
		}
		r.want("a", []byte("2"))
		if !r.set("a", []byte("4"), resp.Present, time.Time{}) {
			t.Error("not stored over a value")
		}
		r.want("a", []byte("4"))
	})
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStoreRig(t, 16<<20)
		at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		r.set("a", []byte("1"), resp.Always, at)
		r.Restart() // the time is stored with the value
		v, err := r.Get(t.Context(), r.o, []byte("a"))
		if err != nil || !v.Expires().Equal(at) || string(v.Bytes()) != "1" {
			t.Fatalf("%v; expires %v, want %v", err, v.Expires(), at)
		}
		v.Release()
		time.Sleep(time.Until(at))
		r.want("a", nil)
		if r.Has(t.Context(), []byte("a")) || r.set("a", []byte("2"), resp.Present, time.Time{}) {
			t.Error("an expired value is there")
		}
		if !r.set("a", []byte("3"), resp.Absent, time.Time{}) {
			t.Error("an expired value is in the way")
		}
		r.want("a", []byte("3"))
	})
}

// A value that is given up, or did not get its room, leaves the old one alone.
func TestOldValueStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStoreRig(t, 16<<20)
		r.set("a", []byte("old"), resp.Always, time.Time{})
		f, err := r.Begin(t.Context(), r.o, []byte("a"), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		r.want("a", []byte("old"))
		f.Abort()
		r.want("a", []byte("old"))
		if _, err := r.Begin(t.Context(), r.o, []byte("a"), resp.MaxValue(1)+1); !errors.Is(err, resp.ErrTooLarge) {
			t.Errorf("begin: %v", err)
		}
		if _, err := r.Begin(t.Context(), r.o, []byte("a"), 60<<20); !errors.Is(err, resp.ErrNoRoom) && !errors.Is(err, resp.ErrTooLarge) {
			t.Errorf("begin: %v", err)
		}
		r.want("a", []byte("old"))
	})
}

// A read while writers overwrite sees one value or another, whole.
func TestNeverTorn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStoreRig(t, 32<<20)
		const size = 100_000
		value := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, size) }
		r.set("a", value(0), resp.Always, time.Time{})
		var writers, readers sync.WaitGroup
		done := make(chan struct{})
		for w := range 3 {
			writers.Go(func() {
				for i := range 60 {
					r.set("a", value(3*i+w), resp.Always, time.Time{})
				}
			})
		}
		for range 2 {
			readers.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					v, err := r.Get(t.Context(), r.o, []byte("a"))
					if err != nil {
						continue // between the old one and the new one
					}
					if b := v.Bytes(); len(b) != size || bytes.Count(b, b[:1]) != size {
						t.Error("a torn value")
					}
					v.Release()
				}
			})
		}
		writers.Wait()
		close(done)
		readers.Wait()
		r.set("a", value(7), resp.Always, time.Time{})
		r.Restart()
		r.want("a", value(7))
	})
}

// A value that Has finds below DRAM is promoted for the read that will follow.
func TestHasPromotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStoreRig(t, 16<<20)
		r.set("a", []byte("x"), resp.Always, time.Time{})
		r.Restart()
		for !r.Has(t.Context(), []byte("a")) { // the disk is being scanned
			time.Sleep(time.Millisecond)
		}
		if time.Sleep(time.Second); r.Tiers.Operator.Stats().Tiers[tier.CPU].Entries == 0 {
			t.Fatal("it is not promoted")
		}
		r.want("a", []byte("x"))
	})
}

// A value that Has finds in DRAM is leased for a moment, unless it is too large.
func TestHasKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStoreRig(t, 16<<20) // of which a tenth may be kept
		leased := func() int64 { return r.Tiers.Operator.Stats().ClassBytes[ledger.Lease.String()] }
		r.set("large", make([]byte, 2<<20), resp.Always, time.Time{})
		r.set("a", make([]byte, 100_000), resp.Always, time.Time{})
		if !r.Has(t.Context(), []byte("large")) || leased() != 0 {
			t.Errorf("%d bytes are leased, more than may be", leased())
		}
		if !r.Has(t.Context(), []byte("a")) || leased() < 100_000 {
			t.Errorf("%d bytes are leased, want those of the value", leased())
		}
		once := leased()
		if time.Sleep(resp.ShelterFor - 1); !r.Has(t.Context(), []byte("a")) || leased() != once {
			t.Errorf("%d bytes are leased when it is asked for again, want %d", leased(), once)
		}
		if time.Sleep(2 * resp.ShelterFor); leased() != 0 {
			t.Error("it stays leased")
		}
	})
}

// The checksum covers the header too, which changes after the value has come.
func TestChecksum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStoreRig(t, 32<<20)
		value := bytes.Repeat([]byte("0123456789abcde"), 10_000)
		for _, expires := range []time.Time{{}, time.Now().Add(time.Hour)} {
			f, err := r.Begin(t.Context(), r.o, []byte("name"), len(value))
			if err != nil {
				t.Fatal(err)
			}
			copy(f.Value(), value)
			if _, err := f.Store(t.Context(), resp.Always, expires); err != nil {
				t.Fatal(err)
			}
			r.want("name", value)
			v, err := r.Get(t.Context(), r.o, []byte("name"))
			if err != nil {
				t.Fatal(err)
			}
			if !v.Verify() {
				t.Errorf("expires %v: a wrong checksum", expires)
			}
			v.Release()
		}
	})
}

// A value whose bytes are told of as they arrive has the checksum of its block,
// in all kinds of parts, with an expiry in front of it, or only partly told of.
func TestChecksumAsBytesArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStoreRig(t, 32<<20)
		value := bytes.Repeat([]byte("0123456789abcdef-"), 20_000)
		for _, n := range []int{0, 1, 1000, 1024, 100_001, len(value)} {
			for _, step := range []int{1000, 1024, 65_536, len(value)} {
				for _, expires := range []time.Time{{}, time.Now().Add(time.Hour)} {
					for _, told := range []int{n, n / 2} {
						f, err := r.Begin(t.Context(), r.o, []byte("name"), n)
						if err != nil {
							t.Fatal(err)
						}
						for at := 0; at < n; at += step {
							part := copy(f.Value()[at:], value[at:min(at+step, n)])
							if at+part <= told {
								f.Arrived(part)
							}
						}
						if _, err := f.Store(t.Context(), resp.Always, expires); err != nil {
							t.Fatal(err)
						}
						v, err := r.Get(t.Context(), r.o, []byte("name"))
						if err != nil {
							t.Fatal(err)
						}
						if !v.Verify() || !bytes.Equal(v.Bytes(), value[:n]) {
							t.Errorf("%d bytes in steps of %d, %d told of, expiry %v: the checksum is another one", n, step, told, expires)
						}
						v.Release()
					}
				}
			}
		}
	})
}
