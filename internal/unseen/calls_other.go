//go:build !linux

package unseen

import "runtime"

// Wake does nothing: the runtime sees every call here.
func Wake() {}

// Yield lets another goroutine run.
func Yield() { runtime.Gosched() }
