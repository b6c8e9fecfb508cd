package replay

import (
	"iter"
	"math/rand/v2"
	"slices"
)

// Chat makes up the prompts of people who chat with one assistant: they share
// a system prompt, and each prompt of a user is the one before, the answer to
// it, and what the user says next. The same Chat always yields the same turns.
type Chat struct {
	Users        int
	Turns        int // of each user
	SystemTokens int
	Seed         uint64
}

// Turn is one prompt.
type Turn struct {
	User   int
	Number int      // of the user's turn, from 0
	Tokens []uint32 // borrowed: good until the next turn is asked for
}

// How people chat. The lengths are those of short questions with answers of a
// few paragraphs. Most prompts come from those who chat right now, the others
// from a user who returns after a while.
const (
	vocabulary         = 128_000
	minSaid, maxSaid   = 60, 400
	minReply, maxReply = 150, 900
	activeUsers        = 6
	activeShare        = 0.5
)

// All yields every turn of every user, each user's in their order.
func (c Chat) All() iter.Seq[Turn] {
	return func(yield func(Turn) bool) {
		rng := rand.New(rand.NewPCG(c.Seed, 0))
		system := tokens(rng, nil, c.SystemTokens)
		prompts := make([][]uint32, c.Users)
		turns := make([]int, c.Users)
		var active, waiting []int // with turns left; active: the youngest last
		for u := range c.Users {
			prompts[u] = slices.Clone(system)
			waiting = append(waiting, u)
		}
		for len(active)+len(waiting) > 0 && c.Turns > 0 {
			u := next(rng, &active, &waiting)
			prompts[u] = tokens(rng, prompts[u], minSaid+rng.IntN(maxSaid-minSaid))
			if !yield(Turn{User: u, Number: turns[u], Tokens: prompts[u]}) {
				return
			}
			if turns[u]++; turns[u] == c.Turns {
				active = active[:len(active)-1]
				prompts[u] = nil
				continue
			}
			prompts[u] = tokens(rng, prompts[u], minReply+rng.IntN(maxReply-minReply))
		}
	}
}

// next chooses who speaks and makes them the youngest of the active.
func next(rng *rand.Rand, active, waiting *[]int) int {
	from := waiting
	if len(*waiting) == 0 || len(*active) > 0 && rng.Float64() < activeShare {
		from = active
	}
	i := rng.IntN(len(*from))
	u := (*from)[i]
	*from = slices.Delete(*from, i, i+1)
	if *active = append(*active, u); len(*active) > activeUsers {
		*waiting = append(*waiting, (*active)[0])
		*active = slices.Delete(*active, 0, 1)
	}
	return u
}

func tokens(rng *rand.Rand, dst []uint32, n int) []uint32 {
	for range n {
		dst = append(dst, rng.Uint32N(vocabulary))
	}
	return dst
}
