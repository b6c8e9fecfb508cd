package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/tier"
)

type flushResult struct {
	Chunks uint64               `json:"written_chunks"`
	Bytes  uint64               `json:"written_bytes"`
	Left   map[string]flushLeft `json:"left"`               // by reason; empty: all that waited is written
	Upload *admin.Uploaded      `json:"uploaded,omitempty"` // with --remote
	Stored *admin.Holdings      `json:"stored,omitempty"`   // left out for users that may not know it
}

type flushLeft struct {
	Chunks uint64 `json:"chunks"`
	Bytes  uint64 `json:"bytes"`
}

func flushCommand() *cobra.Command {
	var (
		at              adminFlags
		durable, upload bool
		dry             bool
		timeout         time.Duration
	)
	cmd := &cobra.Command{
		Use:   "flush",
		Short: "Wait until what was stored is written below DRAM, and say what is where",
		Long: `Wait until everything in DRAM is on disk, where it survives the end of the daemon;
with --durable, a power failure too. Where there is a bucket, wait until what is on
its way there is uploaded as well: give --timeout what that takes. What was given up
is printed by reason, and the exit code is 1 then. An admin is told how many chunks
are where: those stored before there was a bucket are not in it. --remote uploads
them, asks the bucket for each chunk first, and reads from disk only while no client
waits for that; if it is interrupted, call it again.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout < time.Millisecond {
				return usage(fmt.Errorf("--timeout %v: use 1ms or more", timeout))
			}
			if dry && !upload {
				return usage(errors.New("--dry-run goes with --remote"))
			}
			if dry {
				return countMissing(cmd, &at)
			}
			var up *admin.Uploaded
			if upload {
				var err error
				if up, err = uploadAll(cmd, &at); err != nil {
					return err
				}
			}
			return withClient(cmd.Context(), at.socket, client.Options{Inline: true}, func(c *client.Client) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
				defer cancel()
				var f client.Flushed
				unwritten := func(v *statsView) int64 { return v.Store.DirtyBytes }
				err := follow(cmd, at.socket, "flush", unwritten, func() (err error) {
					f, err = c.Flush(ctx, durable)
					return err
				})
				if err != nil {
					return err
				}
				h, untold := holdingsOf(ctx, &at)
				return printFlush(cmd, &f, up, h, untold)
			})
		},
	}
	at.add(cmd)
	jsonFlag(cmd)
	quietFlag(cmd)
	cmd.Flags().BoolVar(&durable, "durable", false, "survive a power failure too")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait, once --remote has uploaded")
	cmd.Flags().BoolVar(&upload, "remote", false, "also upload what is stored here and the bucket lacks")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "with --remote: upload nothing, only count")
	return cmd
}

// holdingsOf asks how many chunks each tier holds, which takes an admin.
func holdingsOf(ctx context.Context, at *adminFlags) (*admin.Holdings, error) {
	var r admin.Uploaded
	err := at.call(func(c *admin.Client) error {
		return c.Do(ctx, "POST", "/v1/upload", admin.UploadRequest{DryRun: true}, &r)
	})
	return r.Holdings, err
}

// countMissing says what an upload would come to at most.
func countMissing(cmd *cobra.Command, at *adminFlags) error {
	h, err := holdingsOf(cmd.Context(), at)
	if err != nil {
		return err
	}
	if _, bucket := h.Tiers[tier.Remote]; !bucket {
		return errors.New("there is no remote tier")
	}
	r := struct {
		DryRun   bool   `json:"dry_run"`
		Chunks   uint64 `json:"chunks"`
		Bytes    uint64 `json:"bytes"`
		Requests uint64 `json:"requests"`
	}{true, h.Missing, h.MissingBytes, 2 * h.Missing} // a HEAD and a PUT for each
	return show(cmd, r, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "would be uploaded, unless the bucket has it: %s, %s, with %s at most\n",
			human.Plural(r.Chunks, "chunk"), human.Bytes(r.Bytes), human.Plural(r.Requests, "request"))
		return err
	})
}

// uploadAll makes one step after another, and tells now and then how far it is.
func uploadAll(cmd *cobra.Command, at *adminFlags) (*admin.Uploaded, error) {
	sum := new(admin.Uploaded)
	err := at.call(func(c *admin.Client) error {
		for told := time.Now(); ; {
			var u admin.Uploaded
			if err := c.Do(cmd.Context(), "POST", "/v1/upload", admin.UploadRequest{After: sum.Next}, &u); err != nil {
				return err
			}
			sum.Chunks, sum.Bytes, sum.Present, sum.Gone = sum.Chunks+u.Chunks, sum.Bytes+u.Bytes, sum.Present+u.Present, sum.Gone+u.Gone
			sum.Failed, sum.FailedBytes, sum.Next = sum.Failed+u.Failed, sum.FailedBytes+u.FailedBytes, u.Next
			if u.Next == "" {
				return nil
			}
			if time.Since(told) >= human.PlainInterval {
				told = time.Now()
				fmt.Fprintf(progressOf(cmd), "upload: %s, %s so far; %s were there\n", human.Plural(sum.Chunks, "chunk"), human.Bytes(sum.Bytes), human.Count(sum.Present))
			}
		}
	})
	if err != nil && sum.Chunks+sum.Present > 0 {
		err = fmt.Errorf("%w; that was after %s uploaded: call it again", err, human.Plural(sum.Chunks, "chunk"))
	}
	return sum, err
}

// written says where everything stored is after a flush that left nothing. The daemon
// may not tell, and has said why then.
func written(f *client.Flushed, h *admin.Holdings, untold error) string {
	just := fmt.Sprintf("; just now: %s (%s)", human.Plural(f.Chunks, "write"), human.Bytes(f.Bytes))
	if h == nil {
		return fmt.Sprintf("what waited is written to the tiers below DRAM, as far as there are such%s; what is where is not known: %v", just, untold)
	}
	onDisk, disk := h.Tiers[tier.Disk]
	inBucket, bucket := h.Tiers[tier.Remote]
	if disk && bucket { // a chunk counts once for each
		just += ", disk and bucket"
	}
	var all, some []string
	if disk {
		all, some = append(all, "on disk"), append(some, human.Count(onDisk)+" on disk")
	}
	if bucket {
		all, some = append(all, "in the bucket"), append(some, human.Count(inBucket)+" known to be in the bucket")
	}
	switch {
	case all == nil:
		return "nothing is stored, and there is no tier below DRAM to write to"
	case (!disk || onDisk == h.Chunks) && (!bucket || inBucket == h.Chunks):
		return "everything stored is " + strings.Join(all, " and ") + just
	}
	return human.Plural(h.Chunks, "chunk") + " stored: " + strings.Join(some, ", ") + outside(h) + just
}

// outside counts the chunks that are not known to be in the bucket.
func outside(h *admin.Holdings) (text string) {
	if h.Local > 0 {
		text = fmt.Sprintf(", %s of Redis clients, which stay here", human.Count(h.Local))
	}
	if h.Missing > 0 {
		text += fmt.Sprintf("; %s (%s) may not be in the bucket: flush --remote uploads them", human.Plural(h.Missing, "chunk"), human.Bytes(h.MissingBytes))
	}
	return text
}

// lostChunks is the reason of chunks that a tier below had and has lost.
const lostChunks = "lost"

// clearedChunks is the reason of those that clear took out of a tier.
const clearedChunks = "cleared"

// unwritten says where the chunks are that a flush has left.
func unwritten(h *admin.Holdings) string {
	if h == nil {
		return "not written to every tier below DRAM"
	}
	if _, bucket := h.Tiers[tier.Remote]; bucket && h.Tiers[tier.Disk] == h.Chunks {
		return "not in the bucket; on disk here, and flush --remote uploads them"
	}
	return "not written, kept in DRAM until evicted"
}

func printFlush(cmd *cobra.Command, f *client.Flushed, up *admin.Uploaded, h *admin.Holdings, untold error) error {
	r := flushResult{Chunks: f.Chunks, Bytes: f.Bytes, Left: make(map[string]flushLeft), Upload: up, Stored: h}
	left, lost := uint64(0), uint64(0)
	for _, l := range f.Left {
		r.Left[l.Reason] = flushLeft{l.Chunks, l.Bytes}
		if left += l.Chunks; l.Reason == lostChunks {
			lost += l.Chunks
		}
	}
	return show(cmd, r, func(w io.Writer) error {
		if up != nil {
			fmt.Fprintf(w, "uploaded: %s, %s; %s were there, %s left out: deleted, expired or wrong by then\n",
				human.Plural(up.Chunks, "chunk"), human.Bytes(up.Bytes), human.Count(up.Present), human.Count(up.Gone))
		}
		if left == 0 {
			fmt.Fprintln(w, written(f, h, untold))
		}
		for _, l := range f.Left {
			if l.Reason == lostChunks { // of which nobody knows the bytes
				fmt.Fprintf(w, "lost: %s, which a tier had stored\n", human.Plural(l.Chunks, "chunk"))
				continue
			}
			fmt.Fprintf(w, "not written, %s: %s, %s\n", l.Reason, human.Plural(l.Chunks, "chunk"), human.Bytes(l.Bytes))
		}
		return r.fault(left, lost, h)
	})
}

// fault is the error that a flush means which has left chunks, some of them lost.
func (r *flushResult) fault(left, lost uint64, h *admin.Holdings) error {
	up := r.Upload
	if up != nil && up.Failed > 0 {
		return fmt.Errorf("%s (%s) could not be uploaded, see the daemon's log; call it again", human.Plural(up.Failed, "chunk"), human.Bytes(up.FailedBytes))
	}
	if lost > 0 {
		return fmt.Errorf("%s lost, see the daemon's log; %s %s", human.Plural(lost, "chunk"), human.Plural(left-lost, "chunk"), unwritten(h))
	}
	if left > 0 {
		if c := r.Left[clearedChunks].Chunks; c > 0 {
			return fmt.Errorf("%s not written; %s of these were taken out of a tier by forget --tier, and stay where they are otherwise", human.Plural(left, "chunk"), human.Plural(c, "chunk"))
		}
		return fmt.Errorf("%s %s", human.Plural(left, "chunk"), unwritten(h))
	}
	return nil
}
