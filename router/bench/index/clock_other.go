//go:build !linux

package main

import "time"

var start = time.Now()

// busy is the time of the clock on the wall.
func busy() time.Duration { return time.Since(start) }
