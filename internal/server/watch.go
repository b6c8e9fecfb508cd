package server

import (
	"time"

	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// What administrators watch of the server's clients while they are at work.

// Client is the connections that a user has under one name. Those of front ends are not
// among them.
type Client struct {
	UID         uint32
	Name        string // as in its hello
	Connections int
	Memory      int64 // bytes outside the arena, as budgets count them
	Leases      int   // jobs and fills that are not ended
	LeaseBytes  uint64
	PinBytes    uint64
}

// Held is all that they hold in DRAM.
func (c *Client) Held() uint64 { return c.LeaseBytes + c.PinBytes }

// first is the first most of a list, and how many are left out.
func first[T any](list []T, most int) ([]T, int) {
	n := min(len(list), most)
	return list[:n], len(list) - n
}

// Lease is a job of a client, or a fill.
type Lease struct {
	ID         uint64
	Connection uint64
	UID        uint32
	Name       string // of the client
	LookupID   string // of the prompt, if it has one
	Space      key.SpaceID
	Model      string // "" where it is not known
	Fill       bool   // blocks that are being written; else a prefix that is read
	Loading    bool   // the prefix may still grow; of a fill: not all is committed
	Chunks     int    // that are held
	Bytes      uint64 // theirs
	Tokens     uint64 // of the prefix, ready
	Found      uint64 // tokens that were found, and are to be ready
	Asked      uint64
	In         [tier.Places]stack.Count // the prefix, by where it was
	Age        time.Duration            // since it began
	Left       time.Duration            // until it ends by age
}

func watchJob(j *job, now time.Time) Lease {
	j.mu.Lock()
	defer j.mu.Unlock()
	l := Lease{
		ID: j.id, Connection: j.session.id, UID: j.session.uid, Name: j.session.name, LookupID: j.short.name.lookupID,
		Space: j.chain.Space, Loading: !j.mu.done, Chunks: len(j.mu.refs), Tokens: j.mu.tokens, Found: j.short.found, Asked: j.short.asked,
		In: j.mu.in, Age: now.Sub(j.short.since), Left: max(0, j.mu.until.Sub(now)),
	}
	for _, r := range j.mu.refs {
		l.Bytes += uint64(r.Block.Len())
	}
	return l
}

func watchFill(f *fill, now time.Time) Lease {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := max(0, f.mu.until.Sub(now))
	l := Lease{
		ID: f.id, Connection: f.session.id, UID: f.session.uid, Name: f.session.name, Space: f.chain.Space,
		Fill: true, Loading: f.mu.live > 0, Chunks: f.mu.live, Age: max(0, f.session.leaseAge-left), Left: left,
	}
	for i := range f.mu.slots {
		if s := &f.mu.slots[i]; s.ref.Valid() {
			l.Bytes += uint64(s.ref.Block.Len())
		}
	}
	return l
}
