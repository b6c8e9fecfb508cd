package resp_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/tier/tierfault"
)

// failingBelow makes every call of the disk an error, as a broken device does.
func failingBelow(tierfault.Call) tierfault.Fault {
	return tierfault.Fault{Err: errors.New("broken")}
}

// hanging never answers.
func hanging(tierfault.Call) tierfault.Fault { return tierfault.Fault{Hang: true} }

// trySet is the error of a set.
func (r *storeRig) trySet(name, value string) error {
	r.t.Helper()
	f, err := r.Begin(r.t.Context(), r.o, []byte(name), len(value))
	if err != nil {
		r.t.Fatal(err)
	}
	copy(f.Value(), value)
	_, err = f.Store(r.t.Context(), resp.Always, time.Time{})
	return err
}

// absent wants that no call shows anything of a name.
func (r *storeRig) absent(name string) {
	r.t.Helper()
	r.want(name, nil)
	if r.Has(r.t.Context(), []byte(name)) {
		r.t.Errorf("%s is there", name)
	}
}

func (r *storeRig) awaitPaid() {
	r.t.Helper()
	for end := time.Now().Add(2 * time.Minute); r.Owed() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%d deletions are owed for ever", r.Owed())
		}
	}
}

// What a tier in trouble may still have is not read any more, neither now nor
// when it works again.
func TestOwedDeletions(t *testing.T) {
	for name, fault := range map[string]tierfault.Hook{"fails": failingBelow, "hangs": hanging} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newStoreRig(t, 16<<20)
				for _, name := range []string{"set", "del", "both", "other"} {
					r.set(name, []byte("old"), resp.Always, time.Time{})
				}
				r.Flush()
				r.Fault(fault)
				if had, err := r.Delete(t.Context(), []byte("del")); !had || err != nil {
					t.Errorf("delete: %v, %v", had, err)
				}
				if err := r.trySet("set", "new"); err == nil || errors.Is(err, resp.ErrUncertain) {
					t.Errorf("set: %v", err)
				}
				if err := r.trySet("both", "new"); err == nil || errors.Is(err, resp.ErrUncertain) {
					t.Errorf("set: %v", err)
				}
				if had, err := r.Delete(t.Context(), []byte("both")); had || err != nil {
					t.Errorf("delete of what is owed: %v, %v", had, err)
				}
				if err := r.trySet("set", "newer"); !errors.Is(err, resp.ErrOwed) {
					t.Errorf("set of what is owed: %v", err)
				}
				if err := r.trySet("fresh", "new"); err != nil { // no tier has it
					t.Errorf("set of a new name: %v", err)
				}
				gone := func() {
					t.Helper()
					for _, name := range []string{"set", "del", "both"} {
						r.absent(name)
					}
				}
				gone()
				if owed := r.Owed(); owed != 3 {
					t.Errorf("%d deletions are owed, want 3", owed)
				}
				r.Fault(nil)
				r.awaitPaid()
				gone()
				r.want("other", []byte("old"))
				r.set("set", []byte("newest"), resp.Always, time.Time{})
				r.Restart()
				r.want("set", []byte("newest"))
				r.absent("del")
			})
		})
	}
}

// A kill forgets owed deletions: an old value may come back, and a later one stays.
func TestOwedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStoreRig(t, 16<<20)
		r.set("a", []byte("old"), resp.Always, time.Time{})
		r.Flush()
		r.Fault(failingBelow)
		if had, err := r.Delete(t.Context(), []byte("a")); !had || err != nil {
			t.Fatalf("delete: %v, %v", had, err)
		}
		r.absent("a")
		r.Fault(nil) // in time for the scan; the kill comes before the deletion
		r.Kill()
		if r.want("a", []byte("old")); r.Owed() != 0 {
			t.Errorf("%d deletions are owed", r.Owed())
		}
		r.set("a", []byte("new"), resp.Always, time.Time{})
		time.Sleep(time.Minute)
		r.want("a", []byte("new"))
	})
}

// There is a bound on debts: a deletion beyond it is not promised.
func TestOwedTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStoreRig(t, 16<<20)
		r.set("a", []byte("old"), resp.Always, time.Time{})
		r.set("b", []byte("old"), resp.Always, time.Time{})
		r.Flush()
		r.Fault(failingBelow)
		r.MaxOwed = 2
		r.Kill()
		if had, err := r.Delete(t.Context(), []byte("first")); had || err != nil { // the disk may have any name
			t.Errorf("%v, %v", had, err)
		}
		if _, err := r.Delete(t.Context(), []byte("a")); err != nil {
			t.Errorf("the last one there is room for: %v", err)
		}
		if _, err := r.Delete(t.Context(), []byte("b")); !errors.Is(err, resp.ErrUncertain) {
			t.Errorf("one more: %v", err)
		}
		if err := r.trySet("b", "new"); !errors.Is(err, resp.ErrUncertain) {
			t.Errorf("a set of it: %v", err)
		}
		r.Fault(nil)
		r.awaitPaid()
		r.absent("a")
	})
}

// Deletions that are owed again and again in turn with those that are paid.
func TestOwedInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStoreRig(t, 16<<20)
		for round := range 5 {
			for i := range 40 {
				r.set(string(rune('a'+i)), []byte{byte(round)}, resp.Always, time.Time{})
			}
			r.Flush()
			r.Fault(failingBelow)
			for i := range 40 {
				if _, err := r.Delete(t.Context(), []byte(string(rune('a'+i)))); err != nil {
					t.Fatal(err)
				}
			}
			r.Fault(nil)
			for i := range 40 {
				r.absent(string(rune('a' + i)))
			}
			r.awaitPaid()
		}
	})
}
