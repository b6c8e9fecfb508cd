//go:build !linux

package main

import "time"

// used: processor time of others is not known here.
func used(int) time.Duration { return 0 }
