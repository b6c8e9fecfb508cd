package blob_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/blob"
	"github.com/kvstored/kvstored/internal/blob/blobtest"
	"github.com/kvstored/kvstored/tier/tierfault"
)

// failing makes every call of the disk an error, as a broken device does.
func failing(tierfault.Call) tierfault.Fault {
	return tierfault.Fault{Err: errors.New("broken")}
}

// hanging never answers.
func hanging(tierfault.Call) tierfault.Fault { return tierfault.Fault{Hang: true} }

// trySet is the error of a set.
func (r *rig) trySet(name, value string) error {
	r.t.Helper()
	f, err := r.Begin(r.t.Context(), r.o, []byte(name), len(value))
	if err != nil {
		r.t.Fatal(err)
	}
	copy(f.Value(), value)
	_, err = f.Store(r.t.Context(), blob.Always, time.Time{})
	return err
}

// absent wants that no call shows anything of a name.
func (r *rig) absent(name string) {
	r.t.Helper()
	r.want(name, nil)
	if r.Has(r.t.Context(), []byte(name)) {
		r.t.Errorf("%s is there", name)
	}
	r.Scan(0, 1000, func(met []byte) {
		if string(met) == name {
			r.t.Errorf("a scan meets %s", name)
		}
	})
	if err := r.Expire(r.t.Context(), r.o, []byte(name), time.Now().Add(time.Hour)); !errors.Is(err, blob.ErrNotFound) {
		r.t.Errorf("expire %s: %v", name, err)
	}
}

func (r *rig) awaitPaid() {
	r.t.Helper()
	for end := time.Now().Add(2 * time.Minute); r.Owed() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%d deletions are owed for ever", r.Owed())
		}
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) { // the file goes a moment later
		if _, err := os.Stat(r.OwedFile); os.IsNotExist(err) {
			return
		}
		if time.Now().After(end) {
			r.t.Fatal("the file of owed deletions stays")
		}
	}
}

// What a tier in trouble may still have is not read any more, neither now nor
// when it works again nor after a kill.
func TestOwedDeletions(t *testing.T) {
	for name, fault := range map[string]tierfault.Hook{"fails": failing, "hangs": hanging} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 16<<20)
				for _, name := range []string{"set", "del", "both", "other"} {
					r.set(name, []byte("old"), blob.Always, time.Time{})
				}
				r.Flush()
				r.Fault(fault)
				if had, err := r.Delete(t.Context(), []byte("del")); !had || err != nil {
					t.Errorf("delete: %v, %v", had, err)
				}
				if err := r.trySet("set", "new"); err == nil || errors.Is(err, blob.ErrUncertain) {
					t.Errorf("set: %v", err)
				}
				if err := r.trySet("both", "new"); err == nil || errors.Is(err, blob.ErrUncertain) {
					t.Errorf("set: %v", err)
				}
				if had, err := r.Delete(t.Context(), []byte("both")); had || err != nil {
					t.Errorf("delete of what is owed: %v, %v", had, err)
				}
				if err := r.trySet("set", "newer"); !errors.Is(err, blob.ErrOwed) {
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
				if n, owed := r.Count(), r.Owed(); n != 2 || owed != 3 {
					t.Errorf("%d names, %d deletions owed; want 2 and 3", n, owed)
				}
				r.Fault(nil) // in time for the scan; the kill comes before the deletions
				r.Kill()
				gone()
				r.awaitPaid()
				gone()
				r.want("other", []byte("old"))
				r.set("set", []byte("newest"), blob.Always, time.Time{})
				r.Restart()
				r.want("set", []byte("newest"))
				r.absent("del")
			})
		})
	}
}

// A debt that is paid in the same process leaves nothing behind.
func TestPaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 16<<20)
		r.set("a", []byte("old"), blob.Always, time.Time{})
		r.Flush()
		r.Fault(failing)
		if _, err := r.Delete(t.Context(), []byte("a")); err != nil {
			t.Fatal(err)
		}
		for range 100 { // of one name, which is remembered once
			if _, err := r.Delete(t.Context(), []byte("a")); err != nil {
				t.Fatal(err)
			}
		}
		if info, err := os.Stat(r.OwedFile); err != nil || info.Size() != 8+16 {
			t.Errorf("the file: %v, %v", info, err)
		}
		r.Fault(nil)
		r.awaitPaid()
		r.absent("a")
		r.set("a", []byte("new"), blob.Always, time.Time{})
		r.want("a", []byte("new"))
		r.Restart()
		r.want("a", []byte("new"))
	})
}

// What cannot be written down is not promised, though it is done.
func TestUncertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 16<<20)
		r.set("a", []byte("old"), blob.Always, time.Time{})
		r.OwedFile = filepath.Join(t.TempDir(), "none", "owed")
		r.Restart()
		for !r.Stack.Ready() {
			time.Sleep(time.Millisecond)
		}
		r.Fault(failing)
		for range 2 {
			if _, err := r.Delete(t.Context(), []byte("a")); !errors.Is(err, blob.ErrUncertain) {
				t.Errorf("delete: %v", err)
			}
			if err := r.trySet("a", "new"); !errors.Is(err, blob.ErrUncertain) {
				t.Errorf("set: %v", err)
			}
		}
		r.absent("a")
		if err := os.Mkdir(filepath.Dir(r.OwedFile), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Delete(t.Context(), []byte("a")); err != nil { // now it can
			t.Errorf("delete: %v", err)
		}
		r.Fault(nil)
		r.awaitPaid()
	})
}

// There is a bound on debts: a deletion beyond it is not promised, and changes
// nothing.
func TestOwedTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 16<<20)
		r.set("a", []byte("old"), blob.Always, time.Time{})
		r.set("b", []byte("old"), blob.Always, time.Time{})
		r.Flush()
		file := []byte("KVOWED1\n")
		for i := range uint32(1<<18 - 1) {
			file = append(file, make([]byte, 12)...)
			file = binary.BigEndian.AppendUint32(file, i)
		}
		if err := os.WriteFile(r.OwedFile, file, 0o600); err != nil {
			t.Fatal(err)
		}
		r.Fault(failing) // also of the scan, after which a deletion of what the disk has not would be made
		r.Kill()
		if _, err := r.Delete(t.Context(), []byte("a")); err != nil {
			t.Errorf("the last one there is room for: %v", err)
		}
		if _, err := r.Delete(t.Context(), []byte("b")); !errors.Is(err, blob.ErrUncertain) {
			t.Errorf("one more: %v", err)
		}
		r.Fault(nil)
		r.awaitPaid()
		r.absent("a")
	})
}

// A file that is not ours is an error at the start and stays; one that a kill
// has cut short counts as far as it goes.
func TestOwedFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		hash := strings.Repeat("h", 16)
		for _, tt := range []struct {
			text string
			says string
			owed int64
		}{
			{"", "", 0},
			{"KVOW", "", 0},
			{"KVOWED1\n", "", 0},
			{"KVOWED1\n" + hash + hash[1:], "", 1},
			{"KVOWED1\n" + hash + hash, "", 1},
			{"KVOWED2\n" + hash, "is not kvstored's; move it away", 0},
			{"something else", "is not kvstored's; move it away", 0},
			{"KVOWED1\n" + strings.Repeat(hash, 1<<18+1), "more than 262144 of them", 0},
		} {
			path := filepath.Join(dir, "owed")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := blob.New(blob.Options{Stack: blobtest.New(t, 16<<20).Stack, Space: "x", OwedFile: path})
			switch {
			case tt.says != "":
				if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), path) {
					t.Errorf("%.20q: %v; want %s", tt.text, err, tt.says)
				}
			case err != nil || s.Owed() != tt.owed:
				t.Errorf("%.20q: %v; want %d owed", tt.text, err, tt.owed)
			}
			if b, err := os.ReadFile(path); err != nil || string(b) != tt.text {
				t.Errorf("%.20q: it is changed: %v", tt.text, err)
			}
		}
		if _, err := blob.New(blob.Options{Stack: blobtest.New(t, 16<<20).Stack, OwedFile: dir}); err == nil {
			t.Error("a folder is no file")
		}
		huge := filepath.Join(dir, "huge")
		if err := os.WriteFile(huge, []byte("KVOWED1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(huge, 1<<40); err != nil { // it is not read as a whole
			t.Skip(err)
		}
		if _, err := blob.New(blob.Options{Stack: blobtest.New(t, 16<<20).Stack, OwedFile: huge}); err == nil || !strings.Contains(err.Error(), "move it away") {
			t.Errorf("a huge file: %v", err)
		}
	})
}

// Deletions that are owed again and again in turn with those that are paid.
func TestOwedInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 16<<20)
		for round := range 5 {
			for i := range 40 {
				r.set(string(rune('a'+i)), []byte{byte(round)}, blob.Always, time.Time{})
			}
			r.Flush()
			r.Fault(failing)
			for i := range 40 {
				if _, err := r.Delete(t.Context(), []byte(string(rune('a'+i)))); err != nil {
					t.Fatal(err)
				}
			}
			r.Fault(nil)
			if round%2 == 0 {
				r.Kill()
			}
			for i := range 40 {
				r.absent(string(rune('a' + i)))
			}
			r.awaitPaid()
		}
	})
}
