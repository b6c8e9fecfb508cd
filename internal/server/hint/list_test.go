package hint

import (
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/kvstored/kvstored/key"
)

// of is a claimant who claims nothing.
func of(c Claimant) Held {
	return Held{Name: c.Name, UID: c.UID, Space: c.Space.String(), Connection: c.Connection}
}

func (h Held) is(c Claimant) bool {
	return h.Name == c.Name && h.UID == c.UID && h.Space == c.Space.String()
}

// list is what each claimant claims, hard or soft.
func (n *naive) list(hard bool) map[Held]Held {
	held := map[Held]Held{}
	for at, c := range n.claims {
		if hard != (at.c.Connection != 0) {
			continue
		}
		x, listed := held[of(at.c)]
		if !listed {
			x = of(at.c)
		}
		x.Chunks++
		x.Bytes += n.sizes[key.Key{Space: at.c.Space, Hash: at.h}]
		x.ExpiresSeconds = max(x.ExpiresSeconds, c.until.Sub(n.now).Seconds())
		held[of(at.c)] = x
	}
	return held
}

// compareLists compares the lists, whole and cut.
func (n *naive) compareLists(t *testing.T, op int, table *Claims) {
	t.Helper()
	n.compareList(t, op, table, false)
	n.compareList(t, op, table, true)
}

func (n *naive) compareList(t *testing.T, op int, table *Claims, hard bool) {
	t.Helper()
	want := n.list(hard)
	list, more := table.List(hard, len(want))
	if len(list) != len(want) || more != 0 {
		t.Fatalf("op %d: %d claimants are listed and %d left out, want %d", op, len(list), more, len(want))
	}
	for i, x := range list {
		who := Held{Name: x.Name, UID: x.UID, Space: x.Space, Connection: x.Connection}
		if x != want[who] || i > 0 && (!hard && x.Bytes > list[i-1].Bytes || hard && x.Name < list[i-1].Name) {
			t.Fatalf("op %d: %d. is %+v, want %+v, in order", op, i, x, want[who])
		}
	}
	if len(want) == 0 {
		return
	}
	if cut, more := table.List(hard, len(want)-1); len(cut) != len(want)-1 || more != 1 {
		t.Fatalf("op %d: %d claimants are listed and %d left out, want %d and 1", op, len(cut), more, len(want)-1)
	}
}

// TestListMeanwhile: a list that is made while claims come and go has what stays whole,
// and of the others no more than there ever was.
func TestListMeanwhile(t *testing.T) {
	table := NewClaims(newTiers(t), ClaimLimits{TotalBytes: 1 << 60, UserBytes: 1 << 60, Duration: time.Hour})
	hs, sizes := make([]key.Hash, 5*round), make([]int64, 5*round)
	for i := range hs {
		binary.LittleEndian.PutUint64(hs[i][:], uint64(i+1))
		sizes[i] = 1
	}
	stays, goes := Claimant{UID: 1, Name: "stays"}, Claimant{UID: 2, Name: "goes"}
	retain := func(c Claimant) {
		if n, err := table.Retain(c, hs, sizes, time.Hour); n != len(hs) || err != nil {
			t.Error(n, err)
		}
	}
	retain(stays)
	var changing sync.WaitGroup
	changing.Go(func() {
		for range 4 {
			retain(goes)
			table.ReleaseAll(goes)
		}
	})
	for range 20 {
		list, _ := table.List(false, 10)
		for _, x := range list {
			if x.Chunks > len(hs) || int64(x.Chunks) != x.Bytes || x.is(stays) && x.Chunks != len(hs) {
				t.Errorf("the list has %+v", x)
			}
		}
	}
	changing.Wait()
}
