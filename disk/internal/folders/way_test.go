package folders

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A folder whose place another user can take is refused: by the folders above it, by those
// that a link leads through, and by the link's own owner. In a sticky folder nobody can.
func TestForeignWays(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	const stranger = 4711
	for name, tt := range map[string]struct {
		hurt    func(top string) error // a folder, in which are way/tier and link, which leads to way
		path    string
		refused bool
	}{
		"our own":             {func(string) error { return nil }, "way/tier", false},
		"by a link":           {func(string) error { return nil }, "link/tier", false},
		"a stranger's parent": {func(top string) error { return os.Chown(top+"/way", stranger, 0) }, "way/tier", true},
		"a stranger's grandparent": {func(top string) error {
			return os.Chown(top, stranger, 0)
		}, "way/tier", true},
		"behind a link":     {func(top string) error { return os.Chown(top+"/way", stranger, 0) }, "link/tier", true},
		"a stranger's link": {func(top string) error { return os.Lchown(top+"/link", stranger, 0) }, "link/tier", true},
		"written by all":    {func(top string) error { return os.Chmod(top+"/way", 0o777) }, "way/tier", true},
		"sticky": {func(top string) error {
			return os.Chmod(top+"/way", 0o777|os.ModeSticky)
		}, "way/tier", false},
		"a stranger's sticky": {func(top string) error {
			return errors.Join(os.Chmod(top+"/way", 0o777|os.ModeSticky), os.Chown(top+"/way", stranger, 0))
		}, "way/tier", true},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			if err := errors.Join(os.MkdirAll(top+"/way/tier", 0o700), os.Symlink("way", top+"/link"), tt.hurt(top)); err != nil {
				t.Fatal(err)
			}
			f, err := OpenFolder(filepath.Join(top, tt.path))
			if errors.Is(err, ErrForeign) != tt.refused {
				t.Errorf("OpenFolder: %v; refused is %t", err, tt.refused)
			}
			if f != nil {
				_ = f.Close()
			}
			if err := checkWay(filepath.Join(top, tt.path, "yet", "to be made")); errors.Is(err, ErrForeign) != tt.refused {
				t.Errorf("checkWay: %v; refused is %t", err, tt.refused)
			}
		})
	}
}
