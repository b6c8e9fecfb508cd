package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/s3test"
)

// remoteDaemon starts a daemon with its own DRAM and disk over a bucket that
// others use too.
func remoteDaemon(t *testing.T, endpoint string, change func(*config.Config)) *demoDaemon {
	t.Helper()
	d := daemonFolder(t)
	cfg := config.Default()
	cfg.Listen.Socket, cfg.Admin.Listen = d.socket, ""
	cfg.CPU.Capacity = 64 << 20
	cfg.Disk.Paths = []string{filepath.Join(filepath.Dir(d.config), "disk")}
	cfg.Disk.Capacity, cfg.Disk.SegmentSize, cfg.Disk.MinFree = 4<<30, 64<<20, 0
	cfg.Remote.S3.Bucket, cfg.Remote.S3.Endpoint, cfg.Remote.S3.PathStyle = s3test.Bucket, endpoint, true
	if change != nil {
		change(&cfg)
	}
	configure(t, d, &cfg)
	if _, err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.kill)
	return d
}

// sharing returns d once it has reached the store.
func sharing(t *testing.T, d *demoDaemon) *demoDaemon {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*demoStartTimeout) // it tries every 30 s at least
	defer cancel()
	for {
		st, err := d.stats(ctx)
		if err != nil {
			t.Fatal(d.failed(err))
		}
		if !st.Store.Tiers["remote"].Off {
			return d
		}
		time.Sleep(demoStartPoll)
	}
}

// flush writes everything that the filter, if there is one, lets pass.
func flush(t *testing.T, socket string) {
	t.Helper()
	c, err := client.Dial(t.Context(), socket, client.Options{Name: "remote", Inline: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	done, err := c.Flush(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range done.Left {
		if l.Reason != "min_hits" {
			t.Fatalf("the flush left %v", done.Left)
		}
	}
}
