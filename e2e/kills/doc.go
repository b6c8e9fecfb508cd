// Package kills tests what daemons leave when they are killed, stopped, upgraded or hung:
// every chunk is absent or right afterwards, and what was promised is there.
//
// It needs Linux and nothing else. A gibibyte of memory and some of disk are in use at a
// time.
package kills
