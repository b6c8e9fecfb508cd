//go:build !amd64

package arena

// Without vectors nothing below is called.
const vectors, streams = false, false

func hashBlocks(*[8]uint64, *[192]byte, *byte, int)          {}
func copyBlocks(*[8]uint64, *[192]byte, *byte, *byte, int)   {}
func streamBlocks(*[8]uint64, *[192]byte, *byte, *byte, int) {}
func streamLines(*byte, *byte, int)                          {}
func toLine([]byte) int                                      { return 0 }
