package disk

import (
	"testing"

	"github.com/kvstored/kvstored/internal/database"
)

// TestMain makes of this program the process of a database where a tier has
// started it: in long runs of damages.
func TestMain(m *testing.M) {
	database.Main()
	m.Run()
}
