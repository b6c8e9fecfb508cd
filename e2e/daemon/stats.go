package daemon

import (
	"context"
	"encoding/json"
	"time"

	"github.com/kvstored/kvstored/client"
)

// Stats is what of the daemon's statistics tests look at, by the names of
// `kvstored stats --json`.
type Stats struct {
	Version string `json:"version"`
	Arena   struct {
		CapacityBytes  int64 `json:"capacity_bytes"`
		PopulatedBytes int64 `json:"populated_bytes"`
	} `json:"arena"`
	Server struct {
		Connections int64             `json:"connections"`
		Malformed   uint64            `json:"malformed_frames"`
		Refused     uint64            `json:"connections_refused"`
		HitChunks   map[string]uint64 `json:"hit_chunks"`
		HitTokens   map[string]uint64 `json:"hit_tokens"`
	} `json:"server"`
	Store struct {
		Recovering bool               `json:"recovering"`
		Chunks     int64              `json:"chunks"`
		Tiers      map[string]Tier    `json:"tiers"`
		Written    map[string]Written `json:"written"`
		Mismatches map[string]uint64  `json:"mismatches"`
	} `json:"store"`
	Memory struct {
		LimitBytes  int64                        `json:"limit_bytes"`
		UsedBytes   int64                        `json:"used_bytes"`
		SocketBytes int64                        `json:"socket_bytes"`
		Closed      map[string]map[string]uint64 `json:"closed"`
	} `json:"memory"`
	Advice string `json:"advice"`
}

// Written is what a tier was not given yet, or will not be.
type Written struct {
	Dropped map[string]struct {
		Chunks uint64 `json:"chunks"`
		Bytes  uint64 `json:"bytes"`
	} `json:"dropped"`
	Waiting   int64 `json:"waiting"`
	Held      bool  `json:"held"`
	HeldBytes int64 `json:"held_bytes"`
}

// Tier is one tier's part of the statistics.
type Tier struct {
	Entries       int64             `json:"entries"`
	PayloadBytes  int64             `json:"payload_bytes"`
	UsedBytes     int64             `json:"used_bytes"`
	CapacityBytes int64             `json:"capacity_bytes"`
	PutBytes      uint64            `json:"put_bytes"`
	GetBytes      uint64            `json:"get_bytes"`
	Evictions     uint64            `json:"evictions"`
	Corrupt       uint64            `json:"corrupt"`
	Off           bool              `json:"off"`
	Counters      map[string]uint64 `json:"counters"`
}

// Ask returns the statistics of the daemon that runs.
func (d *Daemon) Ask(ctx context.Context) (*Stats, error) {
	st := new(Stats)
	return st, d.AskInto(ctx, st)
}

// AskInto decodes the statistics into a view of a test's own.
func (d *Daemon) AskInto(ctx context.Context, view any) error {
	c, err := client.Dial(ctx, d.Socket, client.Options{Name: ours, Inline: true})
	if err != nil {
		return err
	}
	defer c.Close()
	raw, err := c.Stats(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, view)
}

// Stats is Ask, which must not fail.
func (d *Daemon) Stats() *Stats {
	d.t.Helper()
	st, err := d.Ask(d.t.Context())
	if err != nil {
		d.t.Fatal(d.failed(err))
	}
	return st
}

// ours is the name of the connections of this package, which no engine has.
const ours = "test"

// Attached is how many connections clients have that are not this package's.
func (d *Daemon) Attached() (n int) {
	d.t.Helper()
	listed := MustJSON[struct {
		Clients []struct {
			Name        string
			Connections int
		}
	}](d.t, "list", "clients", "--socket", d.Socket)
	for _, c := range listed.Clients {
		if c.Name != ours {
			n += c.Connections
		}
	}
	return n
}

// AwaitAttached waits until clients have so many connections.
func (d *Daemon) AwaitAttached(n int) {
	d.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		have := d.Attached()
		if have >= n {
			return
		}
		if time.Now().After(end) {
			d.t.Fatalf("clients have %d connections, want %d", have, n)
		}
	}
}
