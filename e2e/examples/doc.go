// Package examples runs the programs of examples against daemons.
//
//	go -C e2e test ./examples
//
// It needs python3 with numpy.
package examples
