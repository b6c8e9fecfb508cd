package main

import (
	"testing"

	"github.com/kvstored/kvstored/internal/database"
)

// TestMain makes of this program the process of a database where a daemon of a test has
// started it.
func TestMain(m *testing.M) {
	database.Main()
	m.Run()
}
