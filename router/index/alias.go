package index

// alias is a name that engines give a block: a hash, in a scheme of naming.
type alias struct {
	hash   uint64
	scheme uint16
}

// aliases lead from the names that engines give blocks to the blocks. The first
// name of a block lies beside it, further ones, of other schemes, in a list. An
// alias goes with the last worker of its scheme that has the block. Only the
// writer uses them.
type aliases struct {
	first *table
	pages []*aliasPage // nil: no block of that page has one
	given int64        // pages that are not nil
	lists int64        // of which have lists

	more  *table
	extra []moreAlias
	free  uint32 // the first of extra that waits, linked through next

	salt uint64
}

// aliasBlocks is how many blocks a page of aliases is for.
const aliasBlocks = 256

type aliasPage struct {
	more   *[aliasBlocks]uint32 // the list of each block; nil if none has one
	hash   [aliasBlocks]uint64
	scheme [aliasBlocks]uint16 // 0 = no alias
}

type moreAlias struct {
	alias
	block, next uint32
}

func newAliases(seed [2]uint64) *aliases {
	a := &aliases{extra: make([]moreAlias, 1), salt: seed[0] | 1}
	a.first = newTable(seed, a.firstKey)
	a.more = newTable(seed, func(n uint32) uint64 { return a.name(a.extra[n].alias) })
	return a
}

// name is the key of an alias in a table. Two schemes share keys by chance
// only, and then the aliases are still told apart.
func (a *aliases) name(x alias) uint64 { return x.hash ^ uint64(x.scheme)*a.salt }

func (a *aliases) firstKey(n uint32) uint64 { return a.name(a.of(n)) }

// of is the first alias of a block; its scheme is 0 if there is none.
func (a *aliases) of(n uint32) alias {
	p := a.page(n)
	if p == nil {
		return alias{}
	}
	return alias{p.hash[n%aliasBlocks], p.scheme[n%aliasBlocks]}
}

func (a *aliases) page(n uint32) *aliasPage {
	if i := int(n / aliasBlocks); i < len(a.pages) {
		return a.pages[i]
	}
	return nil
}

// list is the place of a block's list; nil if its page has none.
func (a *aliases) list(n uint32) *uint32 {
	if p := a.page(n); p != nil && p.more != nil {
		return &p.more[n%aliasBlocks]
	}
	return nil
}

// get returns the block with an alias, 0 if there is none.
func (a *aliases) get(hash uint64, scheme uint16) uint32 {
	want := alias{hash, scheme}
	for c := a.first.start(a.name(want)); ; {
		n := c.next()
		if n == 0 {
			break
		}
		if a.of(n) == want {
			return n
		}
	}
	if a.more.count == 0 {
		return 0
	}
	for c := a.more.start(a.name(want)); ; {
		n := c.next()
		if n == 0 {
			return 0
		}
		if a.extra[n].alias == want {
			return a.extra[n].block
		}
	}
}

// add gives a block an alias that no block has.
func (a *aliases) add(hash uint64, scheme uint16, n uint32) {
	for int(n/aliasBlocks) >= len(a.pages) {
		a.pages = append(a.pages, nil)
	}
	p := a.pages[n/aliasBlocks]
	if p == nil {
		p = new(aliasPage)
		a.pages[n/aliasBlocks] = p
		a.given++
	}
	added := alias{hash, scheme}
	if p.scheme[n%aliasBlocks] == 0 {
		p.hash[n%aliasBlocks], p.scheme[n%aliasBlocks] = hash, scheme
		a.first.add(a.name(added), n)
		return
	}
	if p.more == nil {
		p.more = new([aliasBlocks]uint32)
		a.lists++
	}
	m := a.free
	if m != 0 {
		a.free = a.extra[m].next
	} else {
		m = uint32(len(a.extra))
		a.extra = append(a.extra, moreAlias{})
	}
	a.extra[m] = moreAlias{added, n, p.more[n%aliasBlocks]}
	p.more[n%aliasBlocks] = m
	a.more.add(a.name(added), m)
}

// each calls visit with all aliases of a block.
func (a *aliases) each(n uint32, visit func(alias)) {
	if x := a.of(n); x.scheme != 0 {
		visit(x)
	}
	if l := a.list(n); l != nil {
		for m := *l; m != 0; m = a.extra[m].next {
			visit(a.extra[m].alias)
		}
	}
}

// drop removes a block's aliases that gone reports true for.
func (a *aliases) drop(n uint32, gone func(alias) bool) {
	if x := a.of(n); x.scheme != 0 && gone(x) {
		a.first.remove(a.name(x), n)
		a.page(n).scheme[n%aliasBlocks] = 0
	}
	l := a.list(n)
	if l == nil {
		return
	}
	for *l != 0 {
		m := *l
		if !gone(a.extra[m].alias) {
			l = &a.extra[m].next
			continue
		}
		a.more.remove(a.name(a.extra[m].alias), m)
		*l = a.extra[m].next
		a.extra[m] = moreAlias{next: a.free}
		a.free = m
	}
}

func (a *aliases) dropAll(n uint32) {
	if a.page(n) != nil {
		a.drop(n, func(alias) bool { return true })
	}
}

func (a *aliases) count() int { return a.first.count + a.more.count }

func (a *aliases) bytes() int64 {
	return a.given*aliasBlocks*aliasBytes + a.lists*aliasBlocks*4 + int64(cap(a.extra))*24 + 8*int64(cap(a.pages)) + a.first.bytes() + a.more.bytes()
}

func (a *aliases) liveBytes() int64 {
	return int64(a.first.count)*(aliasBytes+tableBytes) + int64(a.more.count)*(24+4+tableBytes)
}
