package disk

import (
	"errors"
	"io/fs"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/tier"
)

// IsTrouble tells an error of an opening or of Check that may pass, so that a
// daemon serves without the tier meanwhile, from one of the configuration: what
// the machine has against it, and a database that ends its process.
func IsTrouble(err error) bool {
	if errors.Is(err, folders.ErrInUse) {
		return false
	}
	for _, passing := range []error{fs.ErrNotExist, tier.ErrNoSpace, blockio.ErrHung, folders.ErrAbsent, errGone} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return metadata.IsTrouble(err)
}
