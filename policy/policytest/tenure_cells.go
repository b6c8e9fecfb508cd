package policytest

import (
	"cmp"
	"slices"

	"github.com/kvstored/kvstored/policy"
)

func (m *tenure) insert(c *chunk, front bool) {
	if !c.resident || c.inCell || c.passedOver || m.kids(c) > 0 {
		return
	}
	c.bin, c.inCell = ageBin(m.now-c.last), true
	q := &m.cells[c.step][c.class][c.bin]
	if front {
		*q = slices.Insert(*q, 0, c)
	} else {
		*q = append(*q, c)
	}
}

func (m *tenure) takeOut(c *chunk) {
	if c.inCell {
		c.inCell = false
		q := &m.cells[c.step][c.class][c.bin]
		*q = slices.DeleteFunc(*q, func(x *chunk) bool { return x == c })
	}
}

func (m *tenure) endResidency(c *chunk) {
	m.takeOut(c)
	up := c.parent
	c.resident, c.passedOver, c.parent = false, false, nil
	if up == nil || m.kids(up) > 0 {
		return
	}
	m.insert(up, true)
	if !up.known() {
		m.all = slices.DeleteFunc(m.all, func(x *chunk) bool { return x == up })
	}
}

func (m *tenure) Evict(ok func(policy.ID) bool) (policy.ID, bool) {
	for {
		c := m.victim()
		if c == nil {
			return 0, false
		}
		m.takeOut(c)
		m.inspected++
		if !ok(c.id) {
			c.passedOver = true
			continue
		}
		m.endResidency(c)
		if c.twin {
			m.forget(c)
		} else {
			c.ghost = true
			m.ghosts = append(m.ghosts, c)
		}
		return c.id, true
	}
}

// victim is the front of the lowest cell, or under guard, of all fronts as old, the one
// asked for longest ago.
func (m *tenure) victim() (v *chunk) {
	at, found := m.lowest(nil)
	if !found || !m.guarded() {
		if found {
			v = m.cells[at[2]][at[0]][at[1]][0]
		}
		return v
	}
	for _, c := range m.all {
		if !c.inCell || m.cells[c.step][c.class][c.bin][0] != c || !m.placed(c.cell()) || oldness(c.cell()) != oldness(at) {
			continue
		}
		if v == nil || cmp.Or(cmp.Compare(c.last, v.last), cmp.Compare(c.step, v.step), m.order(c.cell(), v.cell())) < 0 {
			v = c
		}
	}
	return v
}

// lowest finds the cell of the next victim if that is not but.
func (m *tenure) lowest(but *chunk) (at [3]int, found bool) {
	for _, c := range m.all {
		if c.inCell && c != but && m.placed(c.cell()) && (!found || m.order(c.cell(), at) < 0) {
			at, found = c.cell(), true
		}
	}
	return at, found
}

// cell is where a candidate stands: its class, bin and step.
func (c *chunk) cell() [3]int { return [3]int{c.class, c.bin, c.step} }

func (m *tenure) Allow(id policy.ID) {
	c := m.byID(id)
	if !c.passedOver {
		return
	}
	c.passedOver = false
	m.insertByLast(c)
}

// insertByLast puts a leaf at the end of its cell that its last use says.
func (m *tenure) insertByLast(c *chunk) {
	q := m.cells[c.step][c.class][ageBin(m.now-c.last)]
	m.insert(c, len(q) > 0 && c.last < q[len(q)-1].last)
}
