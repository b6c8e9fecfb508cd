package folders

import (
	"os"

	"golang.org/x/sys/unix"
)

func lockFile(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// canMake is an error where this process could make nothing in dir.
func canMake(dir string) error {
	// Asked with a slash: a file is no place to make something in either.
	if err := unix.Access(dir+"/", unix.W_OK|unix.X_OK); err != nil {
		return &os.PathError{Op: "write to", Path: dir, Err: err}
	}
	return nil
}
