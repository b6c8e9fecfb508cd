package stack

import (
	"github.com/kvstored/kvstored/internal/outline"
	"github.com/kvstored/kvstored/internal/radix"
	"github.com/kvstored/kvstored/key"
)

// outlineBatch is how many chunks an outline looks at while it holds the index.
const outlineBatch = 16 << 10

// outlining is an outline that is being made.
type outlining struct {
	spaces  map[key.SpaceID]int
	list    []outline.Space
	runs    []outline.Run
	at      map[uint32]int // position of a run by its number
	leftOut int
}

// outline adds some runs; next is where it goes on, or 0.
func (x *index) outline(from uint32, m *outlining) (next uint32) {
	x.lock()
	defer x.mu.Unlock()
	return radix.Outline(x.mu.tree, from, outlineBatch, m.add)
}

func (m *outlining) add(st *radix.Stretch) {
	if len(m.runs) == outline.MostRuns {
		m.leftOut++
		return
	}
	space, known := m.spaces[st.Space]
	if !known {
		space = len(m.list)
		m.spaces[st.Space] = space
		m.list = append(m.list, outline.Space{ID: st.Space})
	}
	m.at[st.Run] = len(m.runs)
	m.runs = append(m.runs, outline.Run{
		Number: st.Run, Parent: st.Parent, Detached: st.Detached, Space: space, First: st.First, Length: st.Chunks,
		Use: outline.Use{Chunks: st.Known, In: st.In},
	})
}
