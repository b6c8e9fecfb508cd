//go:build !linux

package main

import "os"

func dropPageCache(string) {}

func openDirect(path string) (*os.File, error) { return os.Open(path) }
