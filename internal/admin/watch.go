package admin

import (
	"context"
	"encoding/hex"

	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/tier"
)

// Clients lists the clients of the protocol, the largest holder first.
type Clients struct {
	Clients []ClientUse `json:"clients"`
	LeftOut int         `json:"left_out"`
}

// ClientUse is the connections that a user has under one name.
type ClientUse struct {
	UID         uint32 `json:"uid"`
	Name        string `json:"name"`
	Connections int    `json:"connections"`
	Memory      int64  `json:"memory_bytes"` // outside DRAM's memory file
	Leases      int    `json:"leases"`       // fills included
	LeaseBytes  uint64 `json:"lease_bytes"`
	PinBytes    uint64 `json:"pin_bytes"`
}

// Leases lists the leases and fills of clients, most bytes first.
type Leases struct {
	Leases  []Lease `json:"leases"`
	LeftOut int     `json:"left_out"`
}

// Jobs is the prefetches that are still loading, oldest first.
type Jobs struct {
	Jobs    []Lease `json:"jobs"`
	LeftOut int     `json:"left_out"`
	Work    []Work  `json:"work"`
}

// Work is what the daemon does by itself.
type Work struct {
	What string `json:"what"` // recover, rebuild, scrub, write
	Tier string `json:"tier"` // that it is about
	Done uint64 `json:"done"` // of Unit; of a write nothing, as its end moves
	Of   uint64 `json:"of"`   // 0: not known
	Unit string `json:"unit"` // records, bytes, chunks
}

// Lease is what a client holds by one request.
type Lease struct {
	ID             uint64            `json:"id"`
	Kind           string            `json:"kind"` // read or write
	Connection     uint64            `json:"connection"`
	UID            uint32            `json:"uid"`
	Name           string            `json:"name"`
	LookupID       string            `json:"lookup_id,omitempty"`
	Space          string            `json:"space"`
	Model          string            `json:"model,omitempty"`
	Loading        bool              `json:"loading"`
	Chunks         int               `json:"chunks"`
	Bytes          uint64            `json:"bytes"`
	ReadyTokens    uint64            `json:"ready_tokens"`
	FoundTokens    uint64            `json:"found_tokens"`
	AskedTokens    uint64            `json:"asked_tokens"`
	Tiers          map[string]uint64 `json:"tier_tokens"` // ready, by where they were
	AgeSeconds     float64           `json:"age_seconds"`
	ExpiresSeconds float64           `json:"expires_seconds"`
}

func (c *call) clients(*None) (*Clients, error) {
	list, more := c.o.Server.Clients(maxListed)
	reply := Clients{Clients: []ClientUse{}, LeftOut: more}
	for _, h := range list {
		reply.Clients = append(reply.Clients, ClientUse(h))
	}
	return &reply, nil
}

func (c *call) leases(*None) (*Leases, error) {
	list, more := c.o.Server.Leases(maxListed, false)
	return &Leases{leasesOf(list), more}, nil
}

func (c *call) jobs(*None) (*Jobs, error) {
	list, more := c.o.Server.Leases(maxListed, true)
	return &Jobs{leasesOf(list), more, c.work()}, nil
}

// work lists what the daemon is at by itself, in the order of the tiers.
func (a *API) work() []Work {
	st, out := a.o.Stack.Stats(), []Work{}
	for p := tier.Disk; int(p) < tier.Places; p++ {
		t, ok := st.Tiers[p]
		if !ok {
			continue
		}
		name, n := p.String(), t.Counters
		if n["recovering"] > 0 {
			out = append(out, Work{"recover", name, n["recover_scanned"], 0, "records"})
		}
		if p == tier.Disk {
			if r, err := a.o.Stack.Rebuild(context.Background(), false); err == nil && r.Running { // which only looks
				out = append(out, Work{"rebuild", name, r.Bytes, r.TotalBytes, "bytes"})
			}
		}
		if n["scrub_running"] > 0 {
			out = append(out, Work{"scrub", name, n["scrub_bytes"], 0, "bytes"})
		}
		if w := st.Written[p].Waiting; w > 0 {
			out = append(out, Work{"write", name, 0, uint64(w), "chunks"})
		}
	}
	return out
}

func leasesOf(list []server.Lease) []Lease {
	out := make([]Lease, 0, len(list))
	for i := range list {
		h := &list[i]
		l := Lease{
			ID: h.ID, Kind: "read", Connection: h.Connection, UID: h.UID, Name: h.Name, LookupID: h.LookupID,
			Space: hex.EncodeToString(h.Space[:]), Model: h.Model, Loading: h.Loading, Chunks: h.Chunks, Bytes: h.Bytes,
			ReadyTokens: h.Tokens, FoundTokens: h.Found, AskedTokens: h.Asked, Tiers: make(map[string]uint64),
			AgeSeconds: h.Age.Seconds(), ExpiresSeconds: h.Left.Seconds(),
		}
		if h.Fill {
			l.Kind = "write"
		}
		for p, n := range h.In {
			if n.Tokens > 0 {
				l.Tiers[tier.Place(p).String()] = n.Tokens
			}
		}
		out = append(out, l)
	}
	return out
}
