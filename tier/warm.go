package tier

import (
	"context"

	"github.com/kvstored/kvstored/key"
)

// Warm brings chunk i of c up to DRAM as idle work, which nobody else waits
// behind, and leases it to nobody. It returns how many bytes came up, and from
// where: none, from DRAM, if the chunk is there already. It ends with ctx.
func (s *Stack) Warm(ctx context.Context, by By, c *key.Chain, i int, search Set) (int64, Place, error) {
	if l, ok := s.holdLoaded(c.Key(i), CPU); ok {
		s.discardLoaded(l)
		return 0, CPU, nil
	}
	by.Idle = true
	l, err := s.up(ctx, by, c, i, search)
	if err != nil {
		return 0, 0, err
	}
	defer s.discardLoaded(l)
	if l.from == CPU {
		return 0, CPU, nil
	}
	return int64(l.ref.Block.Len()), l.from, nil
}
