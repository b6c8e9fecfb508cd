package policytest

import (
	"slices"

	"github.com/kvstored/kvstored/policy"
)

// weighed is a queue of residents or ghosts. The front goes first.
type weighed []item

type item struct {
	id   policy.ID // of a resident
	hash uint64
	size int64
	uses int
}

func (q weighed) weight() (sum float64) {
	for _, e := range q {
		sum += float64(e.size)
	}
	return sum
}

// cut removes the first item that is accepts, if there is one.
func (q *weighed) cut(is func(item) bool) (e item, found bool) {
	for i, e := range *q {
		if is(e) {
			*q = slices.Delete(*q, i, i+1)
			return e, true
		}
	}
	return item{}, false
}

func (q weighed) has(is func(item) bool) bool { return slices.ContainsFunc(q, is) }

func (q *weighed) push(e item) { *q = append(*q, e) }

// trim drops items from the front until the queue weighs no more than limit.
func (q *weighed) trim(limit float64) {
	for len(*q) > 0 && q.weight() > limit {
		*q = (*q)[1:]
	}
}

func byID(id policy.ID) func(item) bool { return func(e item) bool { return e.id == id } }
func byHash(h uint64) func(item) bool   { return func(e item) bool { return e.hash == h } }
