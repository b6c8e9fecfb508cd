package policytest

import (
	"slices"

	"github.com/kvstored/kvstored/policy"
)

func (m *tenure) insert(c *chunk, front bool) {
	if !c.resident || c.inCell || c.passedOver || m.kids(c) > 0 {
		return
	}
	c.bin, c.inCell = ageBin(m.now-c.last), true
	q := &m.cells[c.class][c.bin]
	if front {
		*q = slices.Insert(*q, 0, c)
	} else {
		*q = append(*q, c)
	}
}

func (m *tenure) takeOut(c *chunk) {
	if c.inCell {
		c.inCell = false
		q := &m.cells[c.class][c.bin]
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
		class, bin, found := m.lowest(nil)
		if !found {
			return 0, false
		}
		c := m.cells[class][bin][0]
		m.takeOut(c)
		m.steps++
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

// lowest finds the cell of the next victim if that is not but.
func (m *tenure) lowest(but *chunk) (class, bin int, found bool) {
	for _, o := range m.order {
		q := &m.cells[o[0]][o[1]]
		if len(*q) > 1 || len(*q) == 1 && (*q)[0] != but {
			return o[0], o[1], true
		}
	}
	return 0, 0, false
}

func (m *tenure) Allow(id policy.ID) {
	c := m.byID(id)
	if !c.passedOver {
		return
	}
	c.passedOver = false
	q := m.cells[c.class][ageBin(m.now-c.last)]
	m.insert(c, len(q) > 0 && c.last < q[len(q)-1].last)
}
