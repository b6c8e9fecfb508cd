package kills

import (
	"flag"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/load"
)

var pauseChunks = flag.Int("pause-chunks", 5000, "how many chunks TestPause keeps in DRAM and on disk; 1000000 takes 9 GiB of each")

const (
	pauseBytes  = 5000 // a payload, beyond what lies in the database
	pausePrompt = 500  // chunks of a prompt
	pauseMost   = 5 * time.Second
)

// From SIGTERM to the first answered lookup of the next daemon it takes at most some
// seconds, with all chunks on disk and in DRAM, and all are in DRAM still.
func TestPause(t *testing.T) {
	d, _ := keptDaemon(t, config.Bytes(*pauseChunks)*3*pauseBytes+1<<30)
	d.Configure(func(c *config.Config) {
		c.CPU.Capacity = config.Bytes(*pauseChunks)*8192*23/20 + 64<<20
		c.Write.Mode = config.WriteThrough
	})
	d.Start()
	o := client.Options{Name: "pause", Space: &load.Space, Timeout: time.Minute}
	c := d.Dial(o)
	sizes := make([]uint32, pausePrompt)
	for i := range sizes {
		sizes[i] = pauseBytes
	}
	prompts := *pauseChunks / pausePrompt
	for n := range prompts {
		p := client.Chain(load.Chain(t, load.Space, uint64(n), pausePrompt))
		for first := 0; first < pausePrompt; {
			f, err := c.Reserve(t.Context(), p, client.ReserveOptions{First: first, Sizes: sizes[first:], Wait: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Commit(t.Context()); err != nil { // the bytes that lie there
				t.Fatal(err)
			}
			first += f.Len()
		}
	}
	d.Flush()
	want := d.Stats().Store.Tiers
	epoch, first := c.Epoch(), load.Chain(t, load.Space, 0, 1)
	began := time.Now()
	d.Signal(syscall.SIGTERM)
	answered := make(chan time.Duration, 1)
	go func() {
		for {
			c, err := client.Dial(t.Context(), d.Socket, o)
			if err == nil {
				_, err = c.Lookup(t.Context(), client.Chain(first), 0)
				c.Close()
			}
			if err == nil && c.Epoch() != epoch || t.Context().Err() != nil { // not by the old one
				answered <- time.Since(began)
				return
			}
		}
	}()
	if err := d.Wait(); err != nil {
		t.Fatal(err)
	}
	stopped := time.Since(began)
	d.Launch()
	took := <-answered
	st, err := d.Ready(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d chunks: the old process had ended after %v, the first lookup was answered after %v", *pauseChunks, stopped.Round(time.Millisecond), took.Round(time.Millisecond))
	for _, tier := range []string{"cpu", "disk"} {
		if got := st.Store.Tiers[tier].Entries; got != want[tier].Entries || got < int64(prompts*pausePrompt) {
			t.Errorf("%s: %d of %d chunks", tier, got, want[tier].Entries)
		}
	}
	if took > pauseMost && *pauseChunks >= 1_000_000 {
		t.Errorf("the first lookup was answered after %v", took)
	}
}
