package metadata

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/kvstored/kvstored/disk/internal/blockio"
)

// remedies are the ways in which a machine says no, and what to do about each.
// None of them says anything about what lies on the disk.
var remedies = []struct {
	errno syscall.Errno
	do    string
}{
	{syscall.ENFILE, "the machine has too many files open; raise fs.file-max"}, // whose text begins like the next
	{syscall.EMFILE, "raise the limit of open files (ulimit -n, or LimitNOFILE= of a systemd unit)"},
	{syscall.EACCES, foreign},
	{syscall.EPERM, foreign},
	{syscall.ENOMEM, "raise the memory limit, or vm.max_map_count"},
	{syscall.ENOSPC, "make room on its file system"},
	{syscall.EFBIG, "raise the limit of the size of files (ulimit -f, or LimitFSIZE= of a systemd unit)"},
	{syscall.EDQUOT, "raise the quota of the user that the daemon runs as"},
	{syscall.EROFS, "mount its file system writable"},
	{syscall.EIO, "its device fails; see the kernel's log"},
}

const foreign = "name a folder that the daemon's user may write to, with all that lies in it (disk.paths, disk.meta)"

// lastErrno is that of the system with the most.
const lastErrno syscall.Errno = 133

// IsEnvironment tells a machine that says no from a database that is wrong.
// Badger hands most errors on as text, and of the end of a process there is
// nothing else. SIGBUS is a page of a mapping that its device cannot read, or
// has no room for; a kill is that of the kernel where memory is short, or of an
// operator.
func IsEnvironment(err error) bool {
	if text := err.Error(); strings.Contains(text, "signal SIGBUS") || strings.Contains(text, "(signal: ") {
		return true
	}
	var no syscall.Errno
	if errors.As(err, &no) && isMachines(no) {
		return true
	}
	for no := syscall.Errno(1); no <= lastErrno; no++ {
		if isMachines(no) && strings.Contains(err.Error(), no.Error()) {
			return true
		}
	}
	return false
}

// isMachines reports whether an error is the machine's. That something is not
// there, is of another kind, or has a length that cannot be, may be damage.
func isMachines(no syscall.Errno) bool {
	switch no {
	case syscall.ENOENT, syscall.EINVAL, syscall.ENOTDIR, syscall.EISDIR, syscall.EEXIST:
		return false
	}
	return true
}

// Advised is err with what to do about it, where that is known.
func Advised(err error) error {
	for _, r := range remedies {
		if strings.Contains(err.Error(), r.errno.Error()) {
			return fmt.Errorf("%w; %s", err, r.do)
		}
	}
	return err
}

// spareFiles is how many files Badger may open besides those that its folder
// has: the folder itself, a few times, and the files that it makes.
const spareFiles = 8

// rehearse opens all that Badger will open in dir, all at once, and tells what
// the machine has against it: Badger would end the process, or say so when it
// has opened a part, which it then leaves open. All else is left to Badger.
func rehearse(dir string) error {
	paths, err := badgers(dir)
	for range spareFiles {
		paths = append(paths, dir)
	}
	for _, path := range paths {
		flag := os.O_RDWR
		if path == dir {
			flag = os.O_RDONLY
		}
		var f *os.File
		if err == nil {
			f, err = os.OpenFile(path, flag, 0)
		}
		if err != nil {
			break
		}
		defer f.Close() //nolint:errcheck // nothing was written
	}
	return ofMachine(err)
}

// ofMachine is an error of the machine's; others come as files do and go.
func ofMachine(err error) error {
	if err != nil && IsEnvironment(err) {
		return err
	}
	return nil
}

// badgers are the paths of Badger's files, without foreign ones in its folder.
func badgers(dir string) (paths []string, err error) {
	names, err := os.ReadDir(dir)
	for _, name := range names {
		if isBadgers(name) {
			paths = append(paths, filepath.Join(dir, name.Name()))
		}
	}
	return paths, err
}

// isBadgers tells a file of Badger's from a foreign one in its folder.
func isBadgers(f os.DirEntry) bool {
	switch filepath.Ext(f.Name()) {
	case ".sst", ".mem", ".vlog":
		return f.Type().IsRegular()
	}
	switch f.Name() {
	case "MANIFEST", "KEYREGISTRY", "DISCARD":
		return true
	}
	return false
}

// readAll reads all files of a database, and tells what the machine has against
// that.
func readAll(dir string) error {
	paths, err := badgers(dir)
	piece := make([]byte, blockio.PieceBytes)
	for _, path := range paths {
		if err == nil {
			err = readFile(path, piece)
		}
	}
	return ofMachine(err)
}

func readFile(path string, piece []byte) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, piece)
	return err
}
