//go:build !linux

package spin

// move: a thread cannot be moved here.
func move() {}
