package metadata

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

// What a machine refuses is told from damage, also where Badger has made text
// of it.
func TestIsEnvironment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := func(err error) error { return fmt.Errorf("while opening memtables err: %+v", err) }
		at := func(no syscall.Errno) error { return &fs.PathError{Op: "open", Path: "000001.sst", Err: no} }
		for _, r := range remedies {
			for _, err := range []error{at(r.errno), text(at(r.errno)), text(errors.Join(at(r.errno), errors.New("unable to open: 000001.sst")))} {
				if !IsEnvironment(err) || !strings.Contains(Advised(err).Error(), r.do) {
					t.Errorf("%q counts as damage, or comes without advice", err)
				}
			}
		}
		for _, no := range []syscall.Errno{syscall.ESTALE, syscall.ETIMEDOUT, syscall.ENODEV, syscall.ENOTCONN, syscall.EAGAIN} {
			if !IsEnvironment(at(no)) || !IsEnvironment(text(at(no))) {
				t.Errorf("%q counts as damage", no)
			}
		}
		for _, err := range []error{
			text(at(syscall.ENOENT)), at(syscall.EINVAL), text(io.ErrUnexpectedEOF), errors.New("file does not exist for table 3"),
			errors.New("Log truncate required to run DB"), errors.New("manifest has bad magic"), errors.New("CHECKSUM_MISMATCH: actual: 1, expected: 2"),
		} {
			if IsEnvironment(err) {
				t.Errorf("%q does not count as damage", err)
			}
		}
	})
}
