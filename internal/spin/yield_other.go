//go:build !linux

package spin

import "runtime"

// Yield lets another goroutine run.
func Yield() { runtime.Gosched() }
