package daemon

import (
	"errors"
	"os"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/directory"
)

// clientDirectory is the directory of the arena in memory that clients map. The zero one is
// none: clients ask for each read.
type clientDirectory struct {
	*directory.Directory
	mem  []byte
	file *os.File // for clients; nil: none
}

// makeDirectory makes the directory of the arena. What the kernel does not have is no error:
// reads ask the daemon then.
func (t *tiers) makeDirectory(log *zerolog.Logger) {
	capacity := t.arena.Stats().CapacityBytes
	var c clientDirectory
	var err error
	if c.mem, c.file, err = arena.NewReadOnly("kvstored-directory", directory.Bytes(capacity)); err == nil {
		if c.Directory, err = directory.New(c.mem, capacity); err != nil {
			err = errors.Join(err, c.close())
		}
	}
	switch {
	case err == nil:
		t.directory = c
		t.ages.NoteBounds(c.Forget)
	case !errors.Is(err, errors.ErrUnsupported):
		log.Warn().Err(err).Msg("clients have no directory of the arena: they ask the daemon for each read")
	}
}

// close gives the memory back. Nothing calls the directory any more.
func (c *clientDirectory) close() error {
	if c.file == nil {
		return nil
	}
	return arena.CloseReadOnly(c.mem, c.file)
}

// leave closes the descriptor. The memory stays mapped: work that hangs may still call the
// directory, which was voided.
func (c *clientDirectory) leave() error {
	if c.file == nil {
		return nil
	}
	return c.file.Close()
}
