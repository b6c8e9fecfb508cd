// Command faultfs is a FUSE file system that shows a folder, and answers reads
// of chosen bytes of its files, or writes, with EIO. It serves until its
// standard input ends.
//
// Each line of standard input is an order, answered by a line on standard
// output, "ok" or what is wrong:
//
//	fail NAME FROM TO   reads of bytes FROM..TO of the files of that base name
//	failwrites PATTERN  writes to the files whose base names match, those to come included
//	met                 the answer is "ok", and how often something has failed since it was healed
//	heal                nothing fails any more
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

func main() {
	folder := flag.String("folder", "", "folder to show")
	mount := flag.String("mount", "", "where to show it")
	flag.Parse()
	if err := run(*folder, *mount); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func run(folder, mount string) error {
	var st syscall.Stat_t
	if err := syscall.Stat(folder, &st); err != nil {
		return err
	}
	f := &faults{files: make(map[*node]bool)}
	root := &fs.LoopbackRoot{Path: folder, Dev: uint64(st.Dev)}
	root.NewNode = func(r *fs.LoopbackRoot, _ *fs.Inode, name string, _ *syscall.Stat_t) fs.InodeEmbedder {
		return &node{LoopbackNode: fs.LoopbackNode{RootData: r}, faults: f}
	}
	root.RootNode = root.NewNode(root, nil, "", &st)
	server, err := fs.Mount(mount, root.RootNode, &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "faultfs"}})
	if err != nil {
		return err
	}
	fmt.Println("ok")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(f.obey(in.Text()))
	}
	return unmount(server)
}

// unmountTimeout bounds how long processes that are ending may keep files open.
const unmountTimeout = 30 * time.Second

// unmount tries until no process has a file open any more.
func unmount(server *fuse.Server) (err error) {
	for end := time.Now().Add(unmountTimeout); ; time.Sleep(50 * time.Millisecond) {
		if err = server.Unmount(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// fault is what fails of the files of one base name.
type fault struct {
	name     string
	from, to int64
	writes   bool
}

// faults are those there are now.
type faults struct {
	sync.Mutex
	list  []fault
	files map[*node]bool // that are or were open
	met   int
}

func (f *faults) obey(order string) string {
	var x fault
	var what string
	n, _ := fmt.Sscan(order, &what, &x.name, &x.from, &x.to)
	f.Lock()
	defer f.Unlock()
	switch {
	case what == "fail" && n == 4:
		f.list = append(f.list, x)
		go f.forget(x)
		return "ok"
	case what == "failwrites" && n == 2:
		if _, err := filepath.Match(x.name, ""); err != nil {
			return err.Error()
		}
		x.writes = true
		f.list = append(f.list, x)
		return "ok"
	case what == "met" && n == 1:
		return fmt.Sprint("ok ", f.met)
	case what == "heal" && n == 1:
		f.list, f.met = nil, 0
		return "ok"
	}
	return "not understood: " + order
}

// forget has the kernel drop the pages of a fault, so that it has to ask.
func (f *faults) forget(x fault) {
	f.Lock()
	nodes := make([]*node, 0, len(f.files))
	for n := range f.files {
		nodes = append(nodes, n)
	}
	f.Unlock()
	for _, n := range nodes { // the kernel may write first, and asks us to
		if n.base() == x.name {
			n.NotifyContent(x.from, x.to-x.from)
		}
	}
}

// fails reports whether I/O is to fail.
func (f *faults) fails(name string, off, n int64, write bool) bool {
	f.Lock()
	defer f.Unlock()
	is := slices.ContainsFunc(f.list, func(x fault) bool {
		if write {
			is, _ := filepath.Match(x.name, name) // obey has tried it
			return x.writes && is
		}
		return !x.writes && x.name == name && off < x.to && off+n > x.from
	})
	if is {
		f.met++
	}
	return is
}

// node is a file or folder.
type node struct {
	fs.LoopbackNode
	faults *faults
}

// base is the name it has now.
func (n *node) base() string { return filepath.Base(n.Path(nil)) }

// file is an open one. It is not passed through to the kernel.
type file struct {
	*fs.LoopbackFile
	node *node
}

var (
	_ fs.NodeOpener  = (*node)(nil)
	_ fs.NodeCreater = (*node)(nil)
	_ fs.FileReader  = (*file)(nil)
	_ fs.FileWriter  = (*file)(nil)
	_ fs.NodeFsyncer = (*node)(nil)
)

// Direct I/O ends here: its memory is ours.
const direct = 0o40000

func (n *node) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	fh, _, errno := n.LoopbackNode.Open(ctx, flags&^direct)
	return n.wrap(fh), fuse.FOPEN_KEEP_CACHE, errno
}

func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	inode, fh, _, errno := n.LoopbackNode.Create(ctx, name, flags&^direct, mode, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	return inode, inode.Operations().(*node).wrap(fh), 0, 0
}

func (n *node) wrap(fh fs.FileHandle) fs.FileHandle {
	real, ok := fh.(*fs.LoopbackFile)
	if !ok {
		return fh
	}
	n.faults.Lock()
	n.faults.files[n] = true
	n.faults.Unlock()
	return &file{LoopbackFile: real, node: n}
}

// PassthroughFd keeps the kernel from going past us.
func (f *file) PassthroughFd() (int, bool) { return 0, false }

func (f *file) Read(ctx context.Context, buf []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if f.node.faults.fails(f.node.base(), off, int64(len(buf)), false) {
		return nil, syscall.EIO
	}
	return f.LoopbackFile.Read(ctx, buf, off)
}

func (f *file) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	if f.node.faults.fails(f.node.base(), off, int64(len(data)), true) {
		return 0, syscall.EIO
	}
	return f.LoopbackFile.Write(ctx, data, off)
}

// Fsync is asked of the file.
func (n *node) Fsync(ctx context.Context, fh fs.FileHandle, flags uint32) syscall.Errno {
	if f, ok := fh.(*file); ok {
		return f.LoopbackFile.Fsync(ctx, flags)
	}
	return 0 // a folder
}
