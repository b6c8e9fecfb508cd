//go:build !linux

package client

// adviseHuge has nothing to ask for here.
func adviseHuge([]byte) {}
