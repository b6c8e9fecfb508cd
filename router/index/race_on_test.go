//go:build race

package index

const raceOn = true
