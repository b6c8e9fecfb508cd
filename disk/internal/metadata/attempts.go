package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/kvstored/kvstored/disk/internal/folders"
)

// attempts counts starts that did not get through: Badger may end the process
// over a damaged file, and must not do so for ever.
type attempts struct{ in *folders.Folder }

// begin counts this start and returns how many before it failed in a row.
func (a attempts) begin() (failed int, err error) {
	text, err := a.in.Read(StartsName)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("disk: %w", err)
	}
	if strings.Trim(string(text), "x") == "" { // else garbled: that counts for nothing
		failed = len(text)
	}
	return failed, a.write(failed + 1)
}

// set makes it so many.
func (a attempts) set(failed int) {
	if failed == 0 {
		a.succeeded()
		return
	}
	_ = a.write(failed)
}

// write keeps the number as so many letters, so that no flipped bit raises it.
func (a attempts) write(failed int) error {
	return a.in.Replace(StartsName, bytes.Repeat([]byte("x"), failed))
}

// succeeded forgets the failures.
func (a attempts) succeeded() { _ = a.in.Remove(StartsName) }
