package disk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// stranger is a user whose files a test makes.
const stranger = 4711

// asStranger gives a file to another user, where this process may.
func asStranger(t *testing.T, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	if err := os.Lchown(path, stranger, stranger); err != nil {
		t.Fatal(err)
	}
}

// A folder that another user has, or can write to, and files in it that are not the
// tier's alone are refused, by Open and by Check, and nothing is written through
// them.
func TestForeignFoldersAreRefused(t *testing.T) {
	const canary = "another user's"
	plant := func(make func(old, path string) error, name string) func(*testing.T, string, string) {
		return func(t *testing.T, dir, victim string) {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.RemoveAll(path), make(victim, path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	mode := func(bits os.FileMode) func(*testing.T, string, string) {
		return func(t *testing.T, dir, _ string) {
			if err := os.Chmod(dir, bits); err != nil {
				t.Fatal(err)
			}
		}
	}
	fifo := func(_, path string) error { return syscall.Mkfifo(path, 0o600) }
	for name, tt := range map[string]struct {
		hurt func(t *testing.T, dir, victim string)
		says string
	}{
		"linked witness":                {plant(os.Symlink, metadata.WitnessName), "is a symbolic link"},
		"linked lock":                   {plant(os.Symlink, folders.LockName), "is a symbolic link"},
		"linked copy to come":           {plant(os.Symlink, folders.FormatName+".new"), "is a symbolic link"},
		"linked segment":                {plant(os.Symlink, segmentName(99)), "is a symbolic link"},
		"linked database":               {plant(os.Symlink, folders.DatabaseName), "is a symbolic link"},
		"linked list":                   {plant(os.Symlink, folders.DatabaseName+"/MANIFEST"), "is a symbolic link"},
		"second name":                   {plant(os.Link, metadata.WitnessName), "has 2 names"},
		"pipe as segment":               {plant(fifo, segmentName(99)), "is no regular file"},
		"pipe as marker":                {plant(fifo, folders.FormatName), "is no regular file"},
		"folder as marker":              {plant(func(_, path string) error { return os.Mkdir(path, 0o700) }, folders.FormatName), "is no regular file"},
		"written by all":                {mode(0o777), "(chmod o-w), or choose another path"},
		"written by all, one at a time": {mode(0o777 | os.ModeSticky), "name a folder below it that is yet to be made"},
		"a stranger's":                  {func(t *testing.T, dir, _ string) { asStranger(t, dir) }, "belongs to user 4711"},
		"a stranger's file":             {func(t *testing.T, dir, _ string) { asStranger(t, filepath.Join(dir, folders.MembersName)) }, "belongs to user 4711"},
		"a stranger's tables":           {func(t *testing.T, dir, _ string) { asStranger(t, filepath.Join(dir, folders.DatabaseName)) }, "belongs to user 4711"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := pathOptions(t, 1)
				fillPaths(t, o, 4)
				victim := filepath.Join(tiertest.Folder(t), "victim")
				if err := os.WriteFile(victim, []byte(canary), 0o600); err != nil {
					t.Fatal(err)
				}
				tt.hurt(t, o.Paths[0], victim)
				for what, err := range map[string]error{"Check": Check(o), "Open": failedOpen(o)} {
					if err == nil || !strings.Contains(err.Error(), tt.says) || IsTrouble(err) {
						t.Errorf("%s: %v; want one that says %q, and that does not pass", what, err, tt.says)
					}
				}
				if text, err := os.ReadFile(victim); err != nil || string(text) != canary {
					t.Errorf("the file of another has %q: %v", text, err)
				}
			})
		})
	}
}

// failedOpen is the error of an Open.
func failedOpen(o Options) error {
	d, err := openRig(o)
	if err == nil {
		_ = d.Close()
	}
	return err
}

// What an error and Check say of a folder that is yet to be made is what Open does: below a
// folder that all can write to it is refused, unless there only owners may remove.
func TestFolderYetToBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for bits, says := range map[os.FileMode]string{0o777: "its place can be taken", 0o777 | os.ModeSticky: ""} {
			top := filepath.Join(tiertest.Folder(t), "top")
			if err := errors.Join(os.Mkdir(top, 0o700), os.Chmod(top, bits)); err != nil {
				t.Fatal(err)
			}
			o := testOptions(filepath.Join(top, "new"))
			for what, err := range map[string]error{"Check": Check(o), "Open": failedOpen(o)} {
				if (says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), says) {
					t.Errorf("%s below a folder of mode %v: %v", what, bits, err)
				}
			}
		}
	})
}

// The kubelet gives a pod folders of root's that the group of the pod may write.
func TestFolderOfPodsGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := pathOptions(t, 1)
		if w := Warnings(o); len(w) > 0 {
			t.Errorf("of a folder of its own: %q", w)
		}
		for _, bits := range []os.FileMode{0o775 | os.ModeSetgid, 0o777 | os.ModeSetgid} {
			if err := os.Chmod(o.Paths[0], bits); err != nil {
				t.Fatal(err)
			}
			if os.Geteuid() != 0 && bits&0o002 != 0 {
				continue // it is root's folder only there
			}
			if err := failedOpen(o); err != nil {
				t.Errorf("%v: %v", bits, err)
			}
			o.Meta = o.Paths[0]
			if w := strings.Join(Warnings(o), "\n"); strings.Count(w, "all of group") != 1 {
				t.Errorf("%v: warned %q", bits, w)
			}
		}
	})
}

// A folder whose path leads elsewhere once it is open is the one that was opened.
func TestFolderStaysTheOneOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := pathOptions(t, 1)
		dir := o.Paths[0]
		d, err := openRig(o)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close() //nolint:errcheck // its folder has gone
		if err := errors.Join(os.Rename(dir, dir+".away"), os.Mkdir(dir, 0o700)); err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir + ".away") //nolint:errcheck // no test of that
		if err := d.set.Meta.Replace(cleanName, nil); err != nil {
			t.Fatal(err)
		}
		if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
			t.Errorf("the folder of another has %v: %v", names, err)
		}
	})
}
