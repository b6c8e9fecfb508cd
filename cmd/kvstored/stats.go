package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/daemon"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/tier"
)

// statsView is daemon.Stats as it is read back.
type statsView daemon.Stats

// printWritten says what a tier was not given yet.
func printWritten(l *human.List, wr *writeback.Written, tier string) {
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
		every  time.Duration
	)
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Show what the daemon holds and has done",
		Long: `Show what the daemon holds now, and what it has done since it started. The first
line is 'ready', or what is wrong; the next says what was saved. A hit is a token
of a prefix that was ready when its client stopped waiting, counted by the tier
that it was found in. New text was never stored, so that it cannot be a hit. The
lines of what was missed say why, and a sentence what would have helped; 'kvstored
why' says it of one prompt. --json has more numbers, --watch prints them again and
again, with what was done in between.`,
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
				}
				raw, v, err := readStats(cmd.Context(), c)
				if err != nil {
					return err
				}
				return show(cmd, raw, func(w io.Writer) error {
					v.print(w)
					return nil
				})
			})
		},
	}
	socketFlag(cmd, &socket)
	jsonFlag(cmd)
	cmd.Flags().DurationVar(&every, "watch", 0, "print them again and again, after so long (2s without a value)")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
	cmd.MarkFlagsMutuallyExclusive("watch", "json")
	return cmd
}

func (v *statsView) print(w io.Writer) {
	paragraphs(w, v.Health, v.worth(), v.Bottleneck)
	fmt.Fprintf(w, "kvstored %s, up %s\n\n", v.Version, human.Duration(time.Duration(v.UptimeSeconds*float64(time.Second))))
	v.printTiers(w)
	paragraphs(w, v.Restart.Sentence)
	fmt.Fprintln(w)
	v.printHits(w)
	fmt.Fprintln(w)
	v.printMissed(w)
	v.printModels(w)
	v.printRivals(w)
	v.printRest(w)
}

// paragraphs prints texts, as far as there are any, in lines.
func paragraphs(w io.Writer, texts ...string) {
	for _, text := range texts {
		if text != "" {
			fmt.Fprintln(w, strings.Join(human.Wrapped(text, human.Columns), "\n"))
		}
	}
}

// hits is the tokens that did not have to be computed.
func (v *statsView) hits() (n uint64) {
	for _, hit := range v.Server.HitTokens {
		n += hit
	}
	return n
}

// newText is the tokens of prompts that were stored for the first time: they cannot be hits.
func (v *statsView) newText() (n uint64) {
	for _, m := range v.Server.Missed.Missed {
		if m.Reason == explain.NeverStored.String() {
			n += m.Tokens
		}
	}
	return n
}

// saved is the time that engines did not compute; "" where none has told how fast it is.
func saved(seconds float64) string {
	if seconds <= 0 {
		return ""
	}
	return ": " + human.Seconds(seconds) + " of GPU time, at the rate that engines report"
}

// worth is what the daemon has saved, in a sentence; "" while nothing was asked.
func (v *statsView) worth() string {
	asked, hit, r := v.Server.AskedTokens, v.hits(), &v.Recent
	if asked == 0 {
		return ""
	}
	text := fmt.Sprintf("%s not computed, %s of what was asked for", human.Plural(hit, "token"), human.Percent(float64(hit), float64(asked)))
	seconds := 0.0
	for i := range v.Server.Models {
		seconds += v.Server.Models[i].Saved
	}
	text += saved(seconds)
	if r.AskedTokens > 0 && r.Seconds < v.UptimeSeconds-1 {
		text += fmt.Sprintf("; in the last %s %s (%s)", human.Seconds(r.Seconds), human.Count(r.HitTokens), human.Percent(float64(r.HitTokens), float64(r.AskedTokens))) + saved(r.Saved)
	}
	return text
}

func (v *statsView) printTiers(w io.Writer) {
	var t human.Table
	t.Row("", "chunks", "used", "of", "", "read", "written", "evicted", "corrupt")
	for p := range tier.Place(tier.Places) {
		s, ok := v.Store.Tiers[p]
		if !ok {
			continue
		}
		read := human.Bytes(s.GetBytes)
		if p == tier.CPU {
			read = "-" // by clients, where it lies
		}
		if s.CapacityBytes == 0 { // shared: others store and delete too
			t.Row(p.Title(), "-", "-", "-", "", read, human.Bytes(s.PutBytes), "-", human.Count(s.Corrupt))
			continue
		}
		t.Row(p.Title(), human.Count(s.Entries), human.Bytes(s.UsedBytes), human.Bytes(s.CapacityBytes), human.Percent(float64(s.UsedBytes), float64(s.CapacityBytes)),
			read, human.Bytes(s.PutBytes), human.Count(s.Evictions), human.Count(s.Corrupt))
	}
	t.Print(w, "")
}

func (v *statsView) printHits(w io.Writer) {
	var t human.Table
	asked, hit, unseen := v.Server.AskedTokens, v.hits(), v.newText()
	row := func(name string, n uint64) { t.Row(name, human.Count(n), human.Percent(float64(n), float64(asked))) }
	t.Row("", "tokens", "share")
	for p := range tier.Place(tier.Places) {
		if _, ok := v.Store.Tiers[p]; ok {
			row("hit in "+p.Title(), v.Server.HitTokens[p])
		}
	}
	row("hit", hit)
	row("new text", unseen)
	row("missed", asked-min(asked, hit+unseen))
	t.Row("asked", human.Count(asked), "")
	t.Print(w, "")
}

// mostModels are listed, those of which most was asked.
const mostModels = 10

// printModels prints the hits of each model, where there are several.
func (v *statsView) printModels(w io.Writer) {
	models := slices.Clone(v.Server.Models)
	if len(models) < 2 {
		return
	}
	slices.SortStableFunc(models, func(a, b server.ModelStats) int { return cmp.Compare(b.AskedTokens, a.AskedTokens) })
	var t human.Table
	t.Row("of model", "asked", "hit", "share", "GPU time saved")
	for i := range min(len(models), mostModels) {
		m, hit := &models[i], uint64(0)
		for _, n := range m.HitTokens {
			hit += n
		}
		timeSaved := "-" // of an engine that has not told how fast it is
		if m.Saved > 0 {
			timeSaved = human.Seconds(m.Saved)
		}
		t.Row(printable(m.Model), human.Count(m.AskedTokens), human.Count(hit), human.Percent(float64(hit), float64(m.AskedTokens)), timeSaved)
	}
	if more := len(models) - mostModels; more > 0 {
		t.Row(fmt.Sprintf("and %d more, in --json", more))
	}
	t.Print(w, "")
	fmt.Fprintln(w)
}

// mostRivals are shown, each way.
const mostRivals = 5

// printRivals shows who evicts whom, where there are several.
func (v *statsView) printRivals(w io.Writer) {
	var by, of []string // most first
	cells := make(map[[2]string]uint64)
	note := func(names *[]string, name string) string {
		if len(*names) >= mostRivals && !slices.Contains(*names, name) {
			name = "(others)"
		}
		if !slices.Contains(*names, name) {
			*names = append(*names, name)
		}
		return name
	}
	for _, e := range v.EvictedBy {
		cells[[2]string{note(&of, e.Of), note(&by, e.By)}] += e.Chunks
	}
	if len(by) < 2 && len(of) < 2 {
		return
	}
	var t human.Table
	head := []string{"chunks gone from all tiers in the last hour"}
	for _, b := range by {
		head = append(head, "by "+short(b, 24))
	}
	t.Row(head...)
	for _, o := range of {
		row := []string{"of " + short(o, 30)}
		for _, b := range by {
			row = append(row, human.Count(cells[[2]string{o, b}]))
		}
		t.Row(row...)
	}
	t.Print(w, "")
	fmt.Fprintln(w)
}

func (v *statsView) printRest(w io.Writer) {
	var l human.List
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
	for p := range tier.Place(tier.Places) {
		wr, ok := v.Store.Written[p]
		if !ok {
			continue
		}
		printWritten(&l, &wr, p.Title())
		s := v.Store.Tiers[p]
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
func (v *statsView) quotas(l *human.List) {
	for p := range tier.Place(tier.Places) {
		for _, q := range v.Store.Tiers[p].Quotas {
			l.Row("quota in "+p.Title(), "%s of %s used by models that match %q; %s evicted, %s refused",
				human.Bytes(q.UsedBytes), human.Bytes(q.QuotaBytes), q.Match, human.Plural(q.Evictions, "chunk"), human.Count(q.Refused))
		}
	}
}

// fronts is what clients of other stores do.
func (v *statsView) fronts(l *human.List) {
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
func printDropped(l *human.List, by map[string]uint64, owed int64) {
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
func (v *statsView) disk(l *human.List) {
	s, ok := v.Store.Tiers[tier.Disk]
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
	if r := &v.Recent; r.Reads.Count+r.Writes.Count > 0 {
		l.Row("", "in the last %s: %s, p50 %s, p99 %s; %s, p50 %s, p99 %s", human.Seconds(r.Seconds),
			human.Plural(r.Reads.Count, "read"), human.Micros(1e6*r.Reads.P50), human.Micros(1e6*r.Reads.P99),
			human.Plural(r.Writes.Count, "write"), human.Micros(1e6*r.Writes.P50), human.Micros(1e6*r.Writes.P99))
		if r.Device != "" {
			l.Row("", "%s", r.Device)
		}
	}
	if s.Evictions > 0 {
		l.Row("", "evicted: %s ahead of need, %s for lack of room, %s for min_free", human.Count(n["evicted_ahead"]), human.Count(n["evicted_for_room"]), human.Count(n["evicted_for_min_free"]))
	}
	if n["process_write_bytes"] > 0 {
		l.Row("", "%s written to devices, %s read, as the kernel counts for the process", human.Bytes(n["process_write_bytes"]), human.Bytes(n["process_read_bytes"]))
	}
}

// remote is what the remote tier's requests cost.
func (v *statsView) remote(l *human.List) {
	s, ok := v.Store.Tiers[tier.Remote]
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

// ages is how many chunks have a bound on their age.
func (v *statsView) ages(l *human.List) {
	if n, out := v.Store.Aged, v.Store.AgedOut; n > 0 || out > 0 {
		l.Row("ages", "%s with a largest age; %s removed because of it", human.Plural(n, "chunk"), human.Count(out))
	}
}

// printArena says what the memory of DRAM is made of.
func (v *statsView) printArena(l *human.List) {
	if a := &v.Arena; a.PopulatedBytes < a.CapacityBytes {
		l.Row("", "%s of %s are populated, %s", human.Bytes(a.PopulatedBytes), human.Bytes(a.CapacityBytes), human.Percent(float64(a.PopulatedBytes), float64(a.CapacityBytes)))
	}
	l.Row("", "%s in huge pages, of %s; largest free run %s", human.Bytes(v.Arena.HugeBytes), human.Bytes(v.Arena.CapacityBytes), human.Bytes(v.Arena.LargestFreeBytes))
}

// printGroups says what the groups of hybrid models take, and what their prompts lost.
func (v *statsView) printGroups(l *human.List) {
	for p := range tier.Place(tier.Places) {
		for _, g := range v.Store.Groups[p] {
			if g.Chunks > 0 {
				l.Row(g.Kind+" groups", "%s, %s in %s; %s of them go first", human.Plural(g.Chunks, "chunk"), human.Bytes(g.Bytes), p.Title(), human.Bytes(g.DeadBytes))
			}
		}
	}
	if n := v.Store.ResumePoints.Live; n > 0 {
		l.Row("boundaries", "%s of prompts of hybrid models", human.Plural(n, "usable length"))
	}
	for _, lost := range v.Server.Lost {
		l.Row("lost to "+lost.Group, "%s: %s", human.Plural(lost.Tokens, "token"), lost.Reason)
	}
}

// readStats asks a daemon for its statistics.
func readStats(ctx context.Context, c *client.Client) (raw json.RawMessage, v *statsView, err error) {
	if raw, err = c.Stats(ctx); err != nil {
		return nil, nil, err
	}
	v = new(statsView)
	if err := json.Unmarshal(raw, v); err != nil {
		return nil, nil, fmt.Errorf("the daemon's statistics: %w", err)
	}
	return raw, v, nil
}

// tierNames are the tiers in the order of client.TierCounts, as the protocol has them.
var tierNames = [...]string{"cpu", "disk", "remote"}

// leastWatch is the shortest time between two looks.
const leastWatch = 100 * time.Millisecond

// watchStats prints the statistics again and again until ctx ends, and their changes
// in between. A terminal is cleared before each.
func watchStats(ctx context.Context, w io.Writer, c *client.Client, every time.Duration) error {
	clears := human.Terminal(w)
	var last *statsView
	for {
		_, v, err := readStats(ctx, c)
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
		if base.Sleep(ctx, every) != nil {
			return nil
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
	hit := v.hits() - last.hits()
	asked := v.Server.AskedTokens - last.Server.AskedTokens
	fmt.Fprintf(w, "\nin the last %s: %s tokens asked for, %s hit (%s); %s requests/s, %s/s stored\n",
		human.Seconds(seconds), human.Count(asked), human.Count(hit), human.Percent(float64(hit), float64(asked)),
		human.Count(uint64(float64(v.Server.Requests-last.Server.Requests)/seconds)),
		human.Bytes(float64(v.Server.StoredBytes-last.Server.StoredBytes)/seconds))
	if disk, ok := v.Store.Tiers[tier.Disk]; ok {
		was := last.Store.Tiers[tier.Disk]
		fmt.Fprintf(w, "from disk: %s of the tokens; %s/s read, %s/s written\n",
			human.Percent(float64(v.Server.HitTokens[tier.Disk]-last.Server.HitTokens[tier.Disk]), float64(asked)),
			human.Bytes(float64(disk.GetBytes-was.GetBytes)/seconds), human.Bytes(float64(disk.PutBytes-was.PutBytes)/seconds))
	}
	fmt.Fprintln(w)
}
