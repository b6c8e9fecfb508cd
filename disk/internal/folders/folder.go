package folders

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Folder is an open folder of this process. Its files are found by its
// descriptor, also when its path leads elsewhere, and no link in it is followed. A
// nil Folder is one that is not there. The caller of OpenFolder closes it.
type Folder struct{ root *os.Root }

// OpenFolder opens a folder in whose place, and in which, no other user can plant files.
func OpenFolder(path string) (*Folder, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	f, err := own(root)
	if err == nil {
		if err = checkWay(path); err != nil {
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// checkWay is an error where another user can put another folder in the place of path,
// which the database opens by its name: in a folder on the way, or a link's. The path, or
// the end of it, may be yet to be made.
func checkWay(path string) error {
	lexical, err := NearestExisting(path)
	if err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(lexical)
	if err != nil {
		return err
	}
	for _, way := range []string{lexical, real} {
		for at := way; ; at = filepath.Dir(at) {
			info, err := os.Lstat(at)
			if err != nil {
				return err
			}
			if err := foreignStep(at, info); err != nil {
				return fmt.Errorf("%s: its place can be taken: %w", path, err)
			}
			if at == filepath.Dir(at) {
				break
			}
		}
	}
	return nil
}

// foreignStep is an error for a folder or link on the way that another user can exchange.
// In a sticky folder only the owner of an entry can, who is looked at too.
func foreignStep(path string, info os.FileInfo) error {
	switch mode := info.Mode(); {
	case mode&os.ModeSymlink != 0:
		if uid := info.Sys().(*syscall.Stat_t).Uid; !isOwnUser(uid) {
			return fmt.Errorf("the link %s belongs to user %d: %w; choose another path", path, uid, ErrForeign)
		}
		return nil
	case mode&os.ModeSticky != 0 && isOwnUser(info.Sys().(*syscall.Stat_t).Uid):
		return nil
	}
	return foreignFolder(path, info)
}

// own is a folder unless it is foreign.
func own(root *os.Root) (*Folder, error) {
	info, err := root.Stat(".")
	if err == nil {
		err = foreignFolder(root.Name(), info)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &Folder{root}, nil
}

// ErrForeign says that others have, or may have, what the tier would read and write.
var ErrForeign = errors.New("the disk tier uses only what no other user can change")

// foreignFolder is an error for a folder in which other users can plant files. The kubelet gives a
// pod (fsGroup) a folder of root's that the pod's group may write to; an emptyDir all
// users may. Both are the pod's alone all the same.
func foreignFolder(path string, info os.FileInfo) error {
	st, mode := info.Sys().(*syscall.Stat_t), info.Mode()
	groups, _ := os.Getgroups()
	pods := st.Uid == 0 && mode&os.ModeSetgid != 0 && mode&0o020 != 0 && slices.Contains(append(groups, os.Getegid()), int(st.Gid))
	switch {
	case !isOwnUser(st.Uid):
		return fmt.Errorf("%s belongs to user %d: %w; give it to user %d, or choose another path", path, st.Uid, ErrForeign, os.Geteuid())
	case mode&0o002 != 0 && !pods:
		do := "take that right away (chmod o-w), or choose another path"
		if mode&os.ModeSticky != 0 { // as of /tmp
			do = "name a folder below it that is yet to be made"
		}
		return fmt.Errorf("%s can be written by every user: %w; %s", path, ErrForeign, do)
	}
	return nil
}

// Shared is the group of a folder that its group can write to; false where it cannot.
func Shared(path string) (gid uint32, is bool) {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&0o020 == 0 {
		return 0, false
	}
	return info.Sys().(*syscall.Stat_t).Gid, true
}

func isOwnUser(uid uint32) bool { return uid == 0 || uid == uint32(os.Geteuid()) }

// foreignFile is an error for a file that is a link, has another name that may be in
// another folder, belongs to another user, or is none at all.
func foreignFile(path string, info os.FileInfo) error {
	st, what := info.Sys().(*syscall.Stat_t), ""
	switch {
	case info.Mode()&os.ModeSymlink != 0:
		what = "is a symbolic link"
	case !info.Mode().IsRegular():
		what = "is no regular file"
	case st.Nlink > 1:
		what = fmt.Sprintf("has %d names", st.Nlink)
	case !isOwnUser(st.Uid):
		what = fmt.Sprintf("belongs to user %d", st.Uid)
	default:
		return nil
	}
	return fmt.Errorf("%s %s: %w; remove it, or choose another path", path, what, ErrForeign)
}

// Path is where a file of the folder was when it was opened.
func (f *Folder) Path(name string) string { return filepath.Join(f.root.Name(), name) }

// Check is an error where one of the files that which names is not the tier's own.
func (f *Folder) Check(which func(name string) bool) error {
	names, err := f.Names()
	for _, name := range names {
		if err == nil && which(name) {
			if err = f.look(name); errors.Is(err, fs.ErrNotExist) {
				err = nil // files come and go
			}
		}
	}
	return err
}

// look is an error for a file that is not there, or not the tier's own.
func (f *Folder) look(name string) error {
	info, err := f.root.Lstat(name)
	if err != nil {
		return f.named(err)
	}
	return foreignFile(f.Path(name), info)
}

// named gives the path of an error its folder.
func (f *Folder) named(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		at.Path = f.Path(at.Path)
	}
	return err
}

// Open opens a file of the tier's own, or makes it.
func (f *Folder) Open(name string, flags int) (*os.File, error) {
	if f == nil {
		return nil, fs.ErrNotExist
	}
	switch err := f.look(name); {
	case errors.Is(err, fs.ErrNotExist) && flags&os.O_CREATE != 0:
		flags |= os.O_EXCL
	case err != nil:
		return nil, err
	}
	file, err := f.root.OpenFile(name, flags|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, f.named(err)
	}
	info, err := file.Stat()
	if err == nil {
		err = foreignFile(f.Path(name), info)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Below opens a folder in the folder.
func (f *Folder) Below(name string) (*Folder, error) {
	info, err := f.root.Lstat(name)
	if err != nil {
		return nil, f.named(err)
	}
	if info.Mode()&os.ModeSymlink != 0 {
		return nil, foreignFile(f.Path(name), info)
	}
	root, err := f.root.OpenRoot(name)
	if err != nil {
		return nil, f.named(err)
	}
	return own(root)
}

// Names are the names of all files in the folder.
func (f *Folder) Names() ([]string, error) {
	if f == nil {
		return nil, nil
	}
	dir, err := f.root.Open(".")
	if err != nil {
		return nil, f.named(err)
	}
	defer dir.Close() //nolint:errcheck // nothing was written through it
	return dir.Readdirnames(0)
}

// Read is what a file holds.
func (f *Folder) Read(name string) ([]byte, error) {
	file, err := f.Open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // nothing was written through it
	return io.ReadAll(file)
}

// Stat describes a file.
func (f *Folder) Stat(name string) (os.FileInfo, error) {
	info, err := f.root.Lstat(name)
	return info, f.named(err)
}

// Exists reports whether there is something of that name.
func (f *Folder) Exists(name string) (bool, error) {
	if f == nil {
		return false, nil
	}
	_, err := f.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, f.named(err)
}

// Replace replaces a file with text. When it has returned a power failure
// leaves either; before, the old one or the new one, and never an empty one.
func (f *Folder) Replace(name string, text []byte) error {
	err := f.writeSynced(name+".new", text)
	if err == nil {
		err = f.Rename(name+".new", name)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	return nil
}

func (f *Folder) writeSynced(name string, text []byte) error {
	file, err := f.Open(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// Rename gives a file, or a folder, another name.
func (f *Folder) Rename(name, to string) error { return f.named(f.root.Rename(name, to)) }

// Remove removes a file; a file that is not there is no error.
func (f *Folder) Remove(name string) error {
	if err := f.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return f.named(err)
	}
	return nil
}

// RemoveAll removes a folder and all in it.
func (f *Folder) RemoveAll(name string) error { return f.named(f.root.RemoveAll(name)) }

// Sync makes the names in the folder survive a power failure.
func (f *Folder) Sync() error {
	dir, err := f.root.Open(".")
	if err != nil {
		return f.named(err)
	}
	defer dir.Close() //nolint:errcheck // nothing was written through it
	return dir.Sync()
}

// Close lets go of the folder.
func (f *Folder) Close() error { return f.root.Close() }
