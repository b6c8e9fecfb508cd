package index

// Announcement is what an engine says that it has stored: blocks under hashes
// of its own, with their tokens.
type Announcement struct {
	Parent      Parent   // by the engine's hash
	Hashes      []uint64 // the engine's, one a block
	Tokens      []uint32 // len(Hashes) * BlockTokens, and [Hash.Ahead] more
	BlockTokens int      // as the engine says; must be the shard's
}

// Announce says that a worker has blocks of which it gives the tokens and names
// of its own. The shard computes their sequence hashes and keeps the names as
// aliases, in the worker's scheme, so that later events can name the blocks. It
// returns how many blocks were stored: all, or those before the one that the
// error tells of.
func (s *Shard) Announce(at At, a Announcement) (int, error) {
	const what = "announce"
	switch {
	case s.config.Hash.Opaque():
		return 0, s.failed(what, at, "%w", ErrNoHash)
	case a.BlockTokens != s.config.BlockTokens:
		return 0, s.failed(what, at, "%d tokens: %w; the shard has %d", a.BlockTokens, ErrBlockTokens, s.config.BlockTokens)
	case len(a.Hashes) <= s.index.options.MaxEvent && len(a.Tokens) != len(a.Hashes)*a.BlockTokens+s.config.Hash.Ahead():
		return 0, s.failed(what, at, "%d hashes, %d tokens, %d in a block: %w", len(a.Hashes), len(a.Tokens), a.BlockTokens, ErrCount)
	}
	w, err := s.begin(what, at, len(a.Hashes))
	if err != nil {
		return 0, err
	}
	defer w.end()
	p, parent := uint32(root), Root
	if a.Parent.below {
		if p = w.t.alias.get(a.Parent.hash, w.member.scheme); p == 0 {
			return 0, s.failed(what, at, "%w %s", ErrUnknownParent, a.Parent)
		}
		parent = After(w.t.blocks.key(p))
	}
	stored, err := w.announce(a, p, parent)
	if err != nil {
		return stored, s.failed(what, at, "block %d of %d, %#x: %w", stored+1, len(a.Hashes), a.Hashes[stored], err)
	}
	return stored, nil
}

func (w *writer) announce(a Announcement, p uint32, parent Parent) (int, error) {
	defer func() { w.t.touch(p, w.now) }()
	level := w.t.level(p, w.column)
	for i, hash := range a.Hashes {
		key := w.config.Hash.next(parent, a.Tokens, i, a.BlockTokens)
		n := w.t.table.get(key)
		named := w.t.alias.get(hash, w.member.scheme)
		switch {
		case named != 0 && named != n:
			return i, ErrAlias
		case n == 0:
			n = w.t.add(key, p, w.now)
		case w.t.blocks.at(n).parent() != p:
			return i, ErrParent
		}
		if named == 0 {
			w.rename(n, alias{hash, w.member.scheme})
		}
		level = w.hold(n, level)
		p, parent = n, After(key)
	}
	return len(a.Hashes), nil
}

// rename gives a block its alias in a scheme, in place of another one.
func (w *writer) rename(n uint32, to alias) {
	if w.t.alias.page(n) != nil {
		w.t.alias.drop(n, func(x alias) bool { return x.scheme == to.scheme })
	}
	w.t.alias.add(to.hash, to.scheme, n)
}

// Add says that a worker has blocks in a further medium, by names that its
// engine gave them before. It returns how many of the names are not known; the
// blocks of the others are stored.
func (s *Shard) Add(at At, hashes []uint64) (int, error) {
	w, err := s.begin("add", at, len(hashes))
	if err != nil {
		return 0, err
	}
	defer w.end()
	unknown := 0
	for _, h := range hashes {
		n := w.t.alias.get(h, w.member.scheme)
		if n == 0 {
			unknown++
			continue
		}
		w.hold(n, w.t.level(w.t.blocks.at(n).parent(), w.column))
		w.t.touch(n, w.now)
	}
	return unknown, nil
}

// Withdraw is [Shard.Remove] by the names that the worker's engine gave.
func (s *Shard) Withdraw(at At, hashes []uint64) (int, error) {
	w, err := s.begin("withdraw", at, len(hashes))
	if err != nil {
		return 0, err
	}
	defer w.end()
	unknown := 0
	for _, h := range hashes {
		if n := w.t.alias.get(h, w.member.scheme); n == 0 || !w.lose(n, w.medium) {
			unknown++
		}
	}
	return unknown, nil
}

// loseAliases removes the names that a worker's scheme gives a block, if the
// worker was the last of the scheme that had it.
func (w *writer) loseAliases(n uint32) {
	if w.t.alias.page(n) == nil {
		return
	}
	scheme := w.member.scheme
	if own := w.t.blocks.at(n).own; own != empty {
		r := w.index.workers.Load()
		w.t.sets.scratch = w.t.sets.all(w.t.sets.scratch[:0], own)
		for _, e := range w.t.sets.scratch {
			if r.members[e.column().slot()].scheme == scheme {
				return
			}
		}
	}
	w.t.alias.drop(n, func(x alias) bool { return x.scheme == scheme })
}
