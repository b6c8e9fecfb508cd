//go:build !linux

package spin

import "runtime"

func yield() { runtime.Gosched() }
