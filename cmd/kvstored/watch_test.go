package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/tier"
)

// watched cancels its context when the statistics were printed for the second time.
type watched struct {
	bytes.Buffer
	enough context.CancelFunc
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.Count(w.String(), "kvstored v") == 3 {
		w.enough()
	}
	return n, err
}

// TestWatch: the statistics come again and again, with what was asked for in between, and
// an interruption is no error.
func TestWatch(t *testing.T) {
	socket := serveHere(t).socket
	must(t, "payload", "put", "--text", "a prompt")
	c, err := client.Dial(t.Context(), socket, client.Options{Inline: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w := &watched{enough: cancel}
	if err := watchStats(ctx, w, c, leastWatch); err != nil {
		t.Error(err)
	}
	if n := strings.Count(w.String(), "in the last "); n != 1 && n != 2 { // the third may be cut short
		t.Errorf("watched:\n%s", w.String())
	}
	var v, last statsView
	v.UptimeSeconds, v.Server.AskedTokens, v.Server.HitTokens = 12, 300, map[tier.Place]uint64{tier.CPU: 150, tier.Disk: 30}
	v.Store.Tiers = map[tier.Place]tier.Stats{tier.Disk: {GetBytes: 8 << 20, PutBytes: 5 << 20}}
	last.Store.Tiers = map[tier.Place]tier.Stats{tier.Disk: {PutBytes: 1 << 20}}
	last.UptimeSeconds, last.Server.AskedTokens, last.Server.HitTokens = 10, 100, map[tier.Place]uint64{tier.CPU: 50}
	var out bytes.Buffer
	v.printChange(&out, &last)
	if !strings.Contains(out.String(), "in the last 2.0 s: 200 tokens asked for, 130 hit (65.0 %)") ||
		!strings.Contains(out.String(), "from disk: 15.0 % of the tokens; 4.0 MiB/s read, 2.0 MiB/s written") {
		t.Errorf("changed: %s", out.String())
	}
	for _, wrong := range []string{"0s", "-1s", "x", "10ms", "2"} {
		fails(t, exitUsage, "watch", "stats", "--watch="+wrong)
	}
	fails(t, exitUsage, "do not go together", "stats", "--watch", "--json")
}
