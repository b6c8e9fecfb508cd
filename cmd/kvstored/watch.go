package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/human"
)

// leastWatch is the shortest time between two looks.
const leastWatch = 100 * time.Millisecond

// watchStats prints the statistics again and again until ctx ends, and their changes
// in between. A terminal is cleared before each.
func watchStats(ctx context.Context, w io.Writer, c *client.Client, every time.Duration) error {
	f, ok := w.(*os.File)
	clears := ok && term.IsTerminal(int(f.Fd()))
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last *statsView
	for {
		v, err := readStats(ctx, c)
		if err != nil {
			if ctx.Err() != nil {
				return nil // interrupted, which is how it ends
			}
			return err
		}
		if clears {
			fmt.Fprint(w, "\x1b[H\x1b[2J")
		}
		v.print(w)
		if last != nil {
			v.printChange(w, last)
		}
		last = v
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// printChange tells the changes since an earlier look. A daemon that was started in
// between has done all of it since.
func (v *statsView) printChange(w io.Writer, last *statsView) {
	if v.UptimeSeconds < last.UptimeSeconds {
		last = new(statsView)
	}
	seconds := v.UptimeSeconds - last.UptimeSeconds
	if seconds <= 0 {
		return
	}
	hit := uint64(0)
	for name, n := range v.Server.HitTokens {
		hit += n - last.Server.HitTokens[name]
	}
	asked := v.Server.AskedTokens - last.Server.AskedTokens
	fmt.Fprintf(w, "\nin the last %s: %s tokens asked for, %s hit (%s); %s requests/s, %s/s stored\n",
		human.Seconds(seconds), human.Count(asked), human.Count(hit), human.Percent(float64(hit), float64(asked)),
		human.Count(uint64(float64(v.Server.Requests-last.Server.Requests)/seconds)),
		human.Bytes(float64(v.Server.StoredBytes-last.Server.StoredBytes)/seconds))
	if disk, ok := v.Store.Tiers["disk"]; ok {
		was := last.Store.Tiers["disk"]
		fmt.Fprintf(w, "from disk: %s of the tokens; %s/s read, %s/s written\n",
			human.Percent(float64(v.Server.HitTokens["disk"]-last.Server.HitTokens["disk"]), float64(asked)),
			human.Bytes(float64(disk.GetBytes-was.GetBytes)/seconds), human.Bytes(float64(disk.PutBytes-was.PutBytes)/seconds))
	}
	fmt.Fprintln(w)
}
