package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/human"
)

// rebuildEvery is how often scrub --rebuild asks how far the rebuild is, and
// rebuildTold how often it says so.
const (
	rebuildEvery = 100 * time.Millisecond
	rebuildTold  = time.Second
)

// rebuildIndex begins a rebuild and waits for its end.
func rebuildIndex(cmd *cobra.Command, c *admin.Client, asJSON bool) error {
	ctx := cmd.Context()
	var r admin.Rebuilt
	err := c.Do(ctx, "POST", "/v1/rebuild", nil, &r)
	for told := time.Now(); err == nil && r.Running; err = c.Get(ctx, "/v1/rebuild", &r) {
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

func printRebuilt(cmd *cobra.Command, r *admin.Rebuilt, asJSON bool) error {
	w := cmd.OutOrStdout()
	took := time.Duration(r.Seconds * float64(time.Second))
	if asJSON {
		if err := printJSON(w, r); err != nil {
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
