package demo

import (
	"iter"
	"math/rand/v2"
	"slices"
)

// Chat makes up the prompts of people who chat with one assistant: they share
// a system prompt, and each prompt of a user is the one before, the answer to
// it, and what the user says next. The same Chat always yields the same turns.
// It keeps one prompt at a time, and 16 bytes for each user who has begun.
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
// from a user who begins, or returns after a while.
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
		system := say(rng, nil, c.SystemTokens)
		crowd := crowd{fresh: c.Users}
		var prompt []uint32
		for c.Turns > 0 && len(crowd.active)+crowd.others() > 0 {
			who := crowd.next(rng)
			prompt = c.prompt(append(prompt[:0], system...), who)
			if !yield(Turn{User: who.user, Number: who.turns, Tokens: prompt}) {
				return
			}
			if who.turns++; who.turns < c.Turns {
				crowd.spoke(who)
			}
		}
	}
}

// prompt appends what a user and the assistant have said so far.
func (c Chat) prompt(prompt []uint32, who talker) []uint32 {
	rng := rand.New(rand.NewPCG(c.Seed, uint64(who.user)+1))
	for turn := range who.turns + 1 {
		if turn > 0 {
			prompt = say(rng, prompt, minReply+rng.IntN(maxReply-minReply))
		}
		prompt = say(rng, prompt, minSaid+rng.IntN(maxSaid-minSaid))
	}
	return prompt
}

func say(rng *rand.Rand, prompt []uint32, n int) []uint32 {
	for range n {
		prompt = append(prompt, rng.Uint32N(vocabulary))
	}
	return prompt
}

// talker is a user who has begun, and has turns left.
type talker struct{ user, turns int }

// crowd is who may speak next.
type crowd struct {
	active, waiting []talker // active: the youngest last
	users, fresh    int      // users is how many have begun, fresh how many have not
}

// others is how many are not active.
func (c *crowd) others() int { return len(c.waiting) + c.fresh }

// next takes out who speaks.
func (c *crowd) next(rng *rand.Rand) (who talker) {
	if c.others() == 0 || len(c.active) > 0 && rng.Float64() < activeShare {
		i := rng.IntN(len(c.active))
		who = c.active[i]
		c.active = slices.Delete(c.active, i, i+1)
		return who
	}
	i := rng.IntN(c.others())
	if i >= len(c.waiting) {
		c.fresh--
		c.users++
		return talker{user: c.users - 1}
	}
	last := len(c.waiting) - 1
	who, c.waiting[i], c.waiting = c.waiting[i], c.waiting[last], c.waiting[:last]
	return who
}

// spoke makes a user the youngest of the active.
func (c *crowd) spoke(who talker) {
	if c.active = append(c.active, who); len(c.active) > activeUsers {
		c.waiting = append(c.waiting, c.active[0])
		c.active = slices.Delete(c.active, 0, 1)
	}
}
