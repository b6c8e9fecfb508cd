package server_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// reads is the chunks that were read from the disk, and what becomes of each.
type reads struct {
	sync.Mutex
	done  map[key.Key]bool
	fault func(k key.Key) tierfault.Fault
}

func (d *reads) hook(c tierfault.Call) tierfault.Fault {
	d.Lock()
	defer d.Unlock()
	if c.Op != tierfault.Get || d.fault == nil {
		return tierfault.Fault{}
	}
	d.done[c.Keys[0]] = true
	return d.fault(c.Keys[0])
}

func (d *reads) n() int {
	d.Lock()
	defer d.Unlock()
	return len(d.done)
}

const smallBytes = 256 // of a window or a state of a model like gpt-oss

// withFallbacks is a rig with a prompt of n chunks on disk that is usable at each of ends.
func withFallbacks(t *testing.T, n int, o options, ends ...int) (*rig, *client.Client, *hybridModel, *reads) {
	d := &reads{done: make(map[key.Key]bool)}
	o.capacity, o.hook = 32*mib, d.hook
	r := newRig(t, o)
	c, m := r.hybrid(n, 1)
	r.onDisk(m.chains[0][0], 0, n)
	for _, end := range ends {
		r.onDiskSized(m.chains[1][0], end-2, end, smallBytes)
		r.onDiskSized(m.chains[2][0], end-1, end, smallBytes)
	}
	return r, c, m, d
}

// A job whose last chunks come too late ends at the longest usable length of which all has
// come, and holds nothing else. Its loads for that are a tenth at most.
func TestFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c, m, d := withFallbacks(t, 16, options{}, 4, 8, 12, 16)
		late := m.chains[0][0].Key(10)
		d.fault = func(k key.Key) tierfault.Fault { return tierfault.Fault{Hang: k == late} }
		j, err := c.Prefetch(t.Context(), client.Chain(m.chains[0][0]), client.PrefetchOptions{Groups: m.groups, Policy: client.BestEffort})
		r.must(err)
		all := 16 + 4*3 // with the windows and states of all four lengths
		r.until("all but the late one are in DRAM", func() bool {
			return d.n() == all && r.hot.Ledger().Stats().Entries == all-1
		})
		r.until("8 chunks are usable in DRAM", func() bool { // the index hears of a load after the tier
			found, err := c.LookupWith(t.Context(), client.Chain(m.chains[0][0]), client.LookupOptions{Groups: m.groups, Search: client.CPU, Why: true})
			r.must(err)
			return found.Total.Chunks == 8
		})
		st, err := j.Wait(t.Context(), client.All)
		r.must(err)
		if !st.Done || st.Reason != client.StoppedDeadline || st.Ready.Chunks != 8 {
			t.Fatalf("%+v; want 8 chunks", st)
		}
		r.checkPieces(j, m)
		var leased int64
		for _, need := range j.Needs() {
			leased += int64(need.Chunks)
		}
		r.until("only what 8 chunks need is leased", func() bool { return r.leased() == 8*size+(leased-8)*4096 })
		r.must(j.Release(t.Context()))
	})
}

// Windows and states that take more than a tenth are not loaded for shorter lengths, and one
// that is lost costs nothing.
func TestFallbackIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c, m, d := withFallbacks(t, 16, options{}, 4, 8, 12, 16)
		r.onDisk(m.chains[1][0], 0, 2) // unneeded
		lost := m.chains[2][0].Key(11)
		d.fault = func(k key.Key) tierfault.Fault {
			if k == lost {
				return tierfault.Fault{Err: tier.ErrCorrupt}
			}
			return tierfault.Fault{}
		}
		j, err := c.Prefetch(t.Context(), client.Chain(m.chains[0][0]), client.PrefetchOptions{Groups: m.groups})
		r.must(err)
		st, err := j.Wait(t.Context(), client.All)
		r.must(err)
		if st.Reason != client.Complete || st.Ready.Chunks != 16 {
			t.Errorf("%+v; want all: only what 12 chunks need is corrupt", st)
		}
		r.must(j.Release(t.Context()))

		r, c, m, d = withFallbacks(t, 16, options{})
		for _, end := range []int{8, 16} {
			r.onDisk(m.chains[1][0], end-2, end)
			r.onDisk(m.chains[2][0], end-1, end)
		}
		d.fault = func(key.Key) tierfault.Fault { return tierfault.Fault{} }
		j, err = c.Prefetch(t.Context(), client.Chain(m.chains[0][0]), client.PrefetchOptions{Groups: m.groups})
		r.must(err)
		_, err = j.Wait(t.Context(), client.All)
		r.must(err)
		if n := d.n(); n != 16+3 {
			t.Errorf("%d chunks were read; want 19: three of 16 KiB are more than a tenth", n)
		}
		r.must(j.Release(t.Context()))
	})
}

// A prompt of 128 chunks that is usable at each 16th, of which the disk brings about 70 % until
// the deadline: most of the chunks that have come are usable.
func TestTimeToUsable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, each, delay = 128, 16, 4 * time.Millisecond
		var ends []int
		for end := each; end <= n; end += each {
			ends = append(ends, end)
		}
		var o options
		o.Prefetch.WindowBytes, o.Prefetch.Policy = 4*size, wire.PolicyTimeout
		r, c, m, d := withFallbacks(t, n, o, ends...)
		d.fault = func(key.Key) tierfault.Fault { return tierfault.Fault{Delay: delay} }
		warm, err := c.Prefetch(t.Context(), client.Chain(short(m, each)), client.PrefetchOptions{Groups: m.groups}) // the speed is measured
		r.must(err)
		_, err = warm.Wait(t.Context(), client.All)
		r.must(err)
		r.must(warm.Release(t.Context()))
		began := time.Now()
		j, err := c.Prefetch(t.Context(), client.Chain(m.chains[0][0]), client.PrefetchOptions{Groups: m.groups, Deadline: n / 4 * delay * 7 / 10})
		r.must(err)
		st, err := j.Wait(t.Context(), client.All)
		r.must(err)
		have := make([]bool, n)
		r.hot.Ledger().Lookup(tiertest.Keys(m.chains[0][0], 0, n), have)
		loaded := max(0, slices.Index(have, false))
		if st.Ready.Chunks == n {
			loaded = n
		}
		t.Logf("%d chunks of %d are usable after %v, of %d that have come", st.Ready.Chunks, n, time.Since(began), loaded)
		usable := int(st.Ready.Chunks)
		if loaded >= each && usable == 0 || loaded >= 4*each && usable*10 < loaded*6 {
			t.Errorf("%d chunks are usable, of %d that have come", usable, loaded)
		}
		r.checkPieces(j, m)
		r.must(j.Release(t.Context()))
	})
}

// short is the first n chunks of the prompt.
func short(m *hybridModel, n int) *key.Chain {
	c := *m.chains[0][0]
	c.Hashes, c.Tokens = c.Hashes[:n], c.Tokens[:n]
	return &c
}

// The advice is one of the lengths at which the prompt is usable, and the job is for that.
func TestAdviceOfGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c, m, d := withFallbacks(t, 16, options{}, 4, 8, 12, 16)
		d.fault = func(key.Key) tierfault.Fault { return tierfault.Fault{Delay: time.Millisecond} }
		for _, tc := range []struct {
			name string
			hot  int
			rate uint32
			want uint32
		}{
			{"computing is slow: all", 4, 1, 16},
			{"computing takes no time: what is in DRAM", 8, 4e9, 8},
			{"computing takes no time", 0, 4e9, 0},
		} {
			r.must(r.tiers.Writers.Flush(t.Context(), false))
			for _, chains := range m.chains {
				for i := range chains[0].Len() {
					_ = r.hot.Delete(t.Context(), tiertest.Keys(chains[0], i, i+1))
					_, _ = r.tiers.Leases.Hold(0, 0, chains[0], i, i+1, make([]tier.Ref, 1)) // the index is told
				}
			}
			if tc.hot > 0 {
				r.warmUp(c, m, tc.hot)
			}
			j, err := c.Prefetch(t.Context(), client.Chain(m.chains[0][0]), client.PrefetchOptions{Groups: m.groups, PrefillRate: tc.rate})
			r.must(err)
			st, err := j.Wait(t.Context(), client.All)
			r.must(err)
			if a, ok := j.Advice(); !ok || uint32(a.Load.Chunks) != tc.want || uint32(st.Ready.Chunks) != tc.want || j.Match().Total.Chunks != 16 {
				t.Errorf("%s: advice %+v, %+v, match %+v; want %d chunks", tc.name, a, st, j.Match(), tc.want)
			}
			if models := r.server.Stats().Models; len(models) != 1 || models[0].PrefillRate != tc.rate {
				t.Errorf("%s: %+v, which said %d tokens a second", tc.name, models, tc.rate)
			}
			r.checkPieces(j, m)
			r.must(j.Release(t.Context()))
		}
	})
}
