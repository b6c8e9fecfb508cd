package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/human"
)

// rebuildEvery is how often scrub --rebuild asks how far the rebuild is, and
// rebuildTold how often it says so.
const (
	rebuildEvery = 100 * time.Millisecond
	rebuildTold  = time.Second
)

type rebuildResult struct {
	Bytes      uint64  `json:"bytes"`
	TotalBytes uint64  `json:"total_bytes"`
	Headers    uint64  `json:"headers"`
	Restored   uint64  `json:"restored"`
	Dropped    uint64  `json:"dropped"`
	Resealed   uint64  `json:"headers_rewritten"`
	Seconds    float64 `json:"seconds"`
}

// rebuildIndex begins a rebuild and waits for its end.
func rebuildIndex(cmd *cobra.Command, c *client.Client, asJSON bool) error {
	ctx := cmd.Context()
	r, err := c.Rebuild(ctx)
	for told := time.Now(); err == nil && r.Running; r, err = c.Rebuilt(ctx) {
		if time.Since(told) >= rebuildTold && !asJSON {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s of %s, %s back\n", human.Bytes(r.Bytes), human.Bytes(r.TotalBytes), human.Plural(r.Restored, "chunk"))
			told = time.Now()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; the rebuild goes on", ctx.Err())
		case <-time.After(rebuildEvery):
		}
	}
	if err != nil {
		return err
	}
	return printRebuilt(cmd, &r, asJSON)
}

func printRebuilt(cmd *cobra.Command, r *client.Rebuilt, asJSON bool) error {
	w := cmd.OutOrStdout()
	took := time.Duration(r.Micros) * time.Microsecond
	if asJSON {
		if err := printJSON(w, rebuildResult{r.Bytes, r.TotalBytes, r.Headers, r.Restored, r.Dropped, r.Resealed, took.Seconds()}); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(w, "%s in %v: %s read, %s back, %s dropped, %s written anew\n", human.Bytes(r.Bytes), took.Round(time.Millisecond),
			human.Plural(r.Headers, "header"), human.Plural(r.Restored, "chunk"), human.Plural(r.Dropped, "chunk"), human.Plural(r.Resealed, "header"))
	}
	if r.Bytes < r.TotalBytes {
		return errors.New("a path does not answer: what lies there is rebuilt at the next start")
	}
	return nil
}
