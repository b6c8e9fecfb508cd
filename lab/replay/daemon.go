package replay

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kvstored/kvstored/client"
)

// DaemonCounts is what the daemon counted, of its own statistics.
type DaemonCounts struct {
	Prefetches    int64            `json:"prefetches"`
	AskedChunks   int64            `json:"asked_chunks"`
	AskedTokens   int64            `json:"asked_tokens"`
	MatchedTokens int64            `json:"matched_tokens"`
	HitChunks     map[string]int64 `json:"hit_chunks"`
	HitTokens     map[string]int64 `json:"hit_tokens"`
	StoredChunks  int64            `json:"stored_chunks"`
	StoredBytes   int64            `json:"stored_bytes"`
	Revoked       int64            `json:"revoked"`
	Differs       int64            `json:"put_differs"`
	// LoadedBytes came up from below DRAM.
	LoadedBytes int64 `json:"loaded_bytes"`
	// Dropped is chunks not written to a lower tier, by tier and reason.
	Dropped map[string]int64 `json:"write_dropped"`
}

// counts reads the daemon's counters.
func counts(ctx context.Context, c *client.Client) (*DaemonCounts, error) {
	raw, err := c.Stats(ctx)
	if err != nil {
		return nil, err
	}
	var stats struct {
		Server DaemonCounts `json:"server"`
		Store  struct {
			Loads map[string]struct {
				Bytes int64 `json:"bytes"`
			} `json:"loads"`
			Written map[string]struct {
				Dropped map[string]struct {
					Chunks int64 `json:"chunks"`
				} `json:"dropped"`
			} `json:"written"`
		} `json:"store"`
	}
	if err := json.Unmarshal(raw, &stats); err != nil {
		return nil, fmt.Errorf("the daemon's statistics: %w", err)
	}
	d := &stats.Server
	d.LoadedBytes, d.Dropped = 0, make(map[string]int64)
	for _, v := range stats.Store.Loads {
		d.LoadedBytes += v.Bytes
	}
	for tier, w := range stats.Store.Written {
		for reason, v := range w.Dropped {
			d.Dropped[tier+"."+reason] = v.Chunks
		}
	}
	return d, nil
}

// since is by how much d has grown from before.
func (d *DaemonCounts) since(before *DaemonCounts) *DaemonCounts {
	return &DaemonCounts{
		Prefetches:    d.Prefetches - before.Prefetches,
		AskedChunks:   d.AskedChunks - before.AskedChunks,
		AskedTokens:   d.AskedTokens - before.AskedTokens,
		MatchedTokens: d.MatchedTokens - before.MatchedTokens,
		HitChunks:     grown(d.HitChunks, before.HitChunks),
		HitTokens:     grown(d.HitTokens, before.HitTokens),
		StoredChunks:  d.StoredChunks - before.StoredChunks,
		StoredBytes:   d.StoredBytes - before.StoredBytes,
		Revoked:       d.Revoked - before.Revoked,
		Differs:       d.Differs - before.Differs,
		LoadedBytes:   d.LoadedBytes - before.LoadedBytes,
		Dropped:       grown(d.Dropped, before.Dropped),
	}
}

func grown(now, before map[string]int64) map[string]int64 {
	out := make(map[string]int64, len(now))
	for name, n := range now {
		out[name] = n - before[name]
	}
	return out
}

// agrees reports whether the daemon counted what the clients did.
func (d *DaemonCounts) agrees(r *Result) bool {
	for tier, n := range r.HitTokens {
		if d.HitTokens[tier] != n || d.HitChunks[tier] != r.HitBlocks[tier] {
			return false
		}
	}
	return d.AskedChunks == r.BlockAccesses && d.StoredChunks == r.StoredBlocks && d.StoredBytes == r.BytesWritten
}
