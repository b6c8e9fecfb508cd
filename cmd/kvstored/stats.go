package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/boundary"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/cli"
	"github.com/kvstored/kvstored/internal/daemon"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/tier"
)

// statsView is daemon.Stats as it is read back: its maps have names for keys.
type statsView struct {
	Version       string            `json:"version"`
	UptimeSeconds float64           `json:"uptime_seconds"`
	Health        string            `json:"health"`
	Arena         daemon.ArenaStats `json:"arena"`
	Memory        budget.Stats      `json:"memory"`
	Server        struct {
		server.Stats
		HitChunks map[string]uint64 `json:"hit_chunks"`
		HitTokens map[string]uint64 `json:"hit_tokens"`
		Models    []modelView       `json:"models"`
	} `json:"server"`
	Store struct {
		Recovering     bool                   `json:"recovering"`
		Chunks         int64                  `json:"chunks"`
		ProtectedBytes int64                  `json:"protected_bytes"`
		Aged           int64                  `json:"chunks_with_age"`
		AgedOut        uint64                 `json:"chunks_aged_out"`
		ClassBytes     map[string]int64       `json:"class_bytes"`
		Tiers          map[string]tierView    `json:"tiers"`
		Written        map[string]writtenView `json:"written"`
		Mismatches     map[string]uint64      `json:"mismatches"`
		Boundaries     boundary.Stats         `json:"boundaries"`

		Groups map[string][]stack.GroupStats `json:"groups"`
	} `json:"store"`
	Advice string      `json:"advice"`
	RESP   *resp.Stats `json:"resp"` // nil: that front end is off
}

// modelView is the tokens asked for and hit of a model.
type modelView struct {
	Model       string   `json:"model"`
	AskedTokens uint64   `json:"asked_tokens"`
	HitTokens   []uint64 `json:"hit_tokens"` // by tier, nearest first
	StoredBytes uint64   `json:"stored_bytes"`
}

type tierView struct {
	Entries       int64  `json:"entries"`
	PayloadBytes  int64  `json:"payload_bytes"`
	UsedBytes     int64  `json:"used_bytes"`
	CapacityBytes int64  `json:"capacity_bytes"`
	GetBytes      uint64 `json:"get_bytes"`
	PutBytes      uint64 `json:"put_bytes"`
	Evictions     uint64 `json:"evictions"`
	Corrupt       uint64 `json:"corrupt"`

	Off      bool              `json:"off"`
	Counters map[string]uint64 `json:"counters"`
	Quotas   []tier.QuotaUse   `json:"quotas"`
}

type writtenView struct {
	Dropped map[string]struct {
		Chunks uint64 `json:"chunks"`
		Bytes  uint64 `json:"bytes"`
	} `json:"dropped"`
	Waiting int64 `json:"waiting"`
	Missed  int64 `json:"missed"`

	Held      bool  `json:"held"`
	HeldBytes int64 `json:"held_bytes"`
}

// print says what a tier was not given yet.
func (wr *writtenView) print(l *cli.List, tier string) {
	l.Row("to "+tier, "%s waiting", human.Plural(wr.Waiting, "chunk"))
	if wr.Held {
		l.Row("", "%s of them until DRAM evicts them", human.Bytes(wr.HeldBytes))
	}
	for _, reason := range slices.Sorted(maps.Keys(wr.Dropped)) {
		d := wr.Dropped[reason]
		l.Row("", "%s (%s) dropped: %s", human.Plural(d.Chunks, "chunk"), human.Bytes(d.Bytes), reason)
	}
	if wr.Missed > 0 {
		l.Row("", "%s of them will be offered again when the tier works", human.Plural(wr.Missed, "chunk"))
	}
}

func statsCommand() *cobra.Command {
	var (
		socket string
		asJSON bool
		every  time.Duration
	)
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Show what the daemon holds and has done",
		Long: `Show what the daemon holds now, and what it has done since it started. A hit is
a token of a prefix that was ready when its client stopped waiting, counted by
the tier that it was found in. The lines of what was missed say why, and a sentence
what would have helped; 'kvstored why' says it of one prompt. --json has more
numbers, --watch prints them again and again, with what was done in between.`,
		Example: `  kvstored stats
  kvstored stats --watch=5s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withClient(cmd.Context(), socket, client.Options{Inline: true}, func(c *client.Client) error {
				switch {
				case cmd.Flags().Changed("watch") && every < leastWatch:
					return usage(fmt.Errorf("--watch %v: give at least %v", every, leastWatch))
				case every > 0:
					return watchStats(cmd.Context(), cmd.OutOrStdout(), c, every)
				case asJSON:
					return printRawStats(cmd, c)
				}
				v, err := readStats(cmd.Context(), c)
				if err != nil {
					return err
				}
				v.print(cmd.OutOrStdout())
				return nil
			})
		},
	}
	socketFlag(cmd, &socket)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().DurationVar(&every, "watch", 0, "print them again and again, after so long (2s without a value)")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
	cmd.MarkFlagsMutuallyExclusive("watch", "json")
	return cmd
}

func (v *statsView) print(w io.Writer) {
	for _, line := range cli.Wrapped(v.Health, cli.Columns) {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintf(w, "kvstored %s, up %s\n\n", v.Version, human.Duration(time.Duration(v.UptimeSeconds*float64(time.Second))))
	v.printTiers(w)
	fmt.Fprintln(w)
	v.printHits(w)
	fmt.Fprintln(w)
	v.printMissed(w)
	v.printRest(w)
}

func (v *statsView) printTiers(w io.Writer) {
	var t cli.Table
	t.Row("", "chunks", "used", "of", "", "read", "written", "evicted", "corrupt")
	for i, name := range tierNames {
		s, ok := v.Store.Tiers[name]
		if !ok {
			continue
		}
		read := human.Bytes(s.GetBytes)
		if i == 0 {
			read = "-" // by clients, where it lies
		}
		if s.CapacityBytes == 0 { // shared: others store and delete too
			t.Row(tierTitles[i], "-", "-", "-", "", read, human.Bytes(s.PutBytes), "-", human.Count(s.Corrupt))
			continue
		}
		t.Row(tierTitles[i], human.Count(s.Entries), human.Bytes(s.UsedBytes), human.Bytes(s.CapacityBytes), human.Percent(float64(s.UsedBytes), float64(s.CapacityBytes)),
			read, human.Bytes(s.PutBytes), human.Count(s.Evictions), human.Count(s.Corrupt))
	}
	t.Print(w, "")
}

func (v *statsView) printHits(w io.Writer) {
	var t cli.Table
	asked, hit := v.Server.AskedTokens, uint64(0)
	t.Row("", "tokens", "share")
	for i, name := range tierNames {
		n := v.Server.HitTokens[name]
		hit += n
		if _, ok := v.Store.Tiers[name]; ok {
			t.Row("hit in "+tierTitles[i], human.Count(n), human.Percent(float64(n), float64(asked)))
		}
	}
	t.Row("hit", human.Count(hit), human.Percent(float64(hit), float64(asked)))
	t.Row("asked", human.Count(asked), "")
	t.Print(w, "")
}

func (v *statsView) printRest(w io.Writer) {
	var l cli.List
	s := &v.Server
	l.Row("clients", "%d now, %s since the start", s.Connections, human.Count(s.ConnectionsTotal))
	l.Row("requests", "%s, of them %s refused; %s malformed", human.Count(s.Requests), human.Count(s.Errors), human.Plural(s.Malformed, "frame"))
	l.Row("prefetches", "%s; %s live, %s revoked", human.Count(s.Prefetches), human.Plural(s.LeasesLive, "lease"), human.Count(s.Revoked))
	differs := ""
	if s.Differs > 0 {
		differs = fmt.Sprintf("; %s more with other bytes than were there, which stay", human.Count(s.Differs))
	}
	l.Row("stored", "%s, %s%s", human.Plural(s.StoredChunks, "chunk"), human.Bytes(s.StoredBytes), differs)
	l.Row("DRAM", "%s cannot be evicted now%s", human.Bytes(v.Store.ProtectedBytes), v.classes())
	v.printArena(&l)
	v.printGroups(&l)
	if r := s.Retained; r.Given > 0 {
		l.Row("retained", "%s in %s", human.Bytes(r.Bytes), human.Plural(r.Chunks, "chunk"))
	}
	for i, name := range tierNames {
		wr, ok := v.Store.Written[name]
		if !ok {
			continue
		}
		wr.print(&l, tierTitles[i])
		s := v.Store.Tiers[name]
		if s.Off {
			l.Row("", "switched off after failures; probed until it works again")
		}
		if n := s.Counters["extent_bytes_written"] + s.Counters["badger_bytes_written"]; s.PutBytes > 0 && n > 0 {
			l.Row("", "%s written for %s of payload: x%.2f", human.Bytes(n), human.Bytes(s.PutBytes), float64(n)/float64(s.PutBytes))
		}
	}
	for _, place := range slices.Sorted(maps.Keys(v.Store.Mismatches)) {
		if n := v.Store.Mismatches[place]; n > 0 {
			l.Row("wrong bytes", "%s found by %s, and deleted", human.Plural(n, "chunk"), place)
		}
	}
	v.quotas(&l)
	v.ages(&l)
	v.disk(&l)
	v.remote(&l)
	v.fronts(&l)
	l.Print(w, "")
}

// quotas is what spaces under a quota have of each tier.
func (v *statsView) quotas(l *cli.List) {
	for i, name := range tierNames {
		for _, q := range v.Store.Tiers[name].Quotas {
			l.Row("quota in "+tierTitles[i], "%s of %s used by models that match %q; %s evicted, %s refused",
				human.Bytes(q.UsedBytes), human.Bytes(q.QuotaBytes), q.Match, human.Plural(q.Evictions, "chunk"), human.Count(q.Refused))
		}
	}
}

// fronts is what clients of other stores do.
func (v *statsView) fronts(l *cli.List) {
	if s := v.RESP; s != nil {
		l.Row("Redis clients", "%d now, %s since the start, %s refused, %s malformed", s.Connections, human.Count(s.ConnectionsTotal), human.Count(s.Refused), human.Count(s.Malformed))
		l.Row("", "%s, %s, %s refused; %s hit, %s missed, %s stored", human.Plural(s.Commands, "command"), human.Plural(s.Errors, "error"), human.Plural(s.LoginsRefused, "login"), human.Count(s.Hits), human.Count(s.Misses), human.Count(s.Stored))
		l.Row("", "%s received, %s sent", human.Bytes(s.BytesRead), human.Bytes(s.BytesWritten))
		printDropped(l, s.Dropped, s.Owed)
		if s.HungUp > 0 {
			l.Row("", "%s disconnected instead of being told an error", human.Plural(s.HungUp, "client"))
		}
	}
}

// printDropped prints what a front end took and did not keep.
func printDropped(l *cli.List, by map[string]uint64, owed int64) {
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		if n := by[reason]; n > 0 {
			l.Row("", "%s dropped: %s", human.Plural(n, "value"), reason)
		}
	}
	if owed > 0 {
		l.Row("", "%s still to be deleted below, and not readable", human.Plural(owed, "old value"))
	}
}

// disk is what the disk tier's devices do.
func (v *statsView) disk(l *cli.List) {
	s, ok := v.Store.Tiers["disk"]
	if !ok {
		return
	}
	n := s.Counters
	how := "direct I/O"
	if n["direct_io"] == 0 {
		how = "buffered I/O"
	}
	trouble := ""
	if n["paths_missing"]+n["paths_off"] > 0 {
		trouble = fmt.Sprintf("; %d missing, %d left alone after failures", n["paths_missing"], n["paths_off"])
	}
	l.Row("disk", "%s, %s%s; %s recovered, %s lost", human.Plural(n["paths"], "path"), how, trouble, human.Plural(n["recover_scanned"], "record"), human.Count(n["recover_lost"]))
	l.Row("", "%d reads and %d writes queued, %d under way; %s, %s", n["read_queue"], n["write_queue"], n["io_in_flight"],
		human.Plural(n["io_errors"], "error"), human.Plural(n["io_timeouts"], "timeout"))
	if s.Evictions > 0 {
		l.Row("", "evicted: %s ahead of need, %s for lack of room, %s for min_free", human.Count(n["evicted_ahead"]), human.Count(n["evicted_for_room"]), human.Count(n["evicted_for_min_free"]))
	}
	if n["process_write_bytes"] > 0 {
		l.Row("", "%s written to devices, %s read, as the kernel counts for the process", human.Bytes(n["process_write_bytes"]), human.Bytes(n["process_read_bytes"]))
	}
}

// remote is what the remote tier's requests cost.
func (v *statsView) remote(l *cli.List) {
	s, ok := v.Store.Tiers["remote"]
	if !ok {
		return
	}
	state := ""
	if s.Off {
		state = "; switched off, see the log"
	}
	n := s.Counters
	l.Row("S3 requests", "%s PUT, %s GET, %s HEAD, %s LIST, %s DELETE%s", human.Count(n["put_requests"]), human.Count(n["get_requests"]),
		human.Count(n["head_requests"]), human.Count(n["list_requests"]), human.Count(n["delete_requests"]), state)
	l.Row("", "%s sent, %s received, %s of them wasted; %s retried", human.Bytes(n["sent_bytes"]), human.Bytes(n["received_bytes"]),
		human.Bytes(n["wasted_bytes"]), human.Count(n["retries"]))
}

// classNames are the classes of holds, as people call them.
var classNames = map[string]string{
	"lease": "leases and fills", "pin": "pins", "load": "being promoted", "unwritten": "not yet written below",
}

// classes is what the protected memory is for, as far as there is any. A
// chunk may be there for several reasons.
func (v *statsView) classes() string {
	var out []string
	for _, c := range slices.Sorted(maps.Keys(v.Store.ClassBytes)) {
		if n := v.Store.ClassBytes[c]; n > 0 && classNames[c] != "" {
			out = append(out, classNames[c]+" "+human.Bytes(n))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return ": " + strings.Join(out, ", ")
}
