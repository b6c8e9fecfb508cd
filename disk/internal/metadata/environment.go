package metadata

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
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

// Remedy is what to do about an error, or "".
func Remedy(err error) string {
	for _, r := range remedies {
		if strings.Contains(err.Error(), r.errno.Error()) {
			return r.do
		}
	}
	return ""
}

// Advised is err with what to do about it, where that is known.
func Advised(err error) error {
	if do := Remedy(err); do != "" {
		return fmt.Errorf("%w; %s", err, do)
	}
	return err
}
