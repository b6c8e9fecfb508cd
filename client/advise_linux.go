package client

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages. Nothing depends on them, so a kernel that
// gives none is no error.
func adviseHuge(p []byte) { _ = unix.Madvise(p, unix.MADV_HUGEPAGE) }
