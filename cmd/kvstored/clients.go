package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/cli"
	"github.com/kvstored/kvstored/internal/human"
)

// listCommand is a command that prints one answer of the admin.socket.
func listCommand[R any](use, short, long, path string, print func(io.Writer, *R)) *cobra.Command {
	var (
		at     adminFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long + "\nIt takes an admin.", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := new(R)
			if err := at.call(func(c *admin.Client) error { return c.Get(cmd.Context(), path, r) }); err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), r)
			}
			print(cmd.OutOrStdout(), r)
			return nil
		},
	}
	at.add(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func clientsCommand() *cobra.Command {
	return listCommand("clients", "List the clients, and what they hold", `List the clients of the protocol by what they hold in DRAM: connections of one user
under one name together. Memory is what they take outside DRAM's memory file;
'kvstored leases' lists what is leased, 'kvstored pins' what is pinned. Clients of
front ends are counted by 'kvstored stats'.`, "/v1/clients", printClients)
}

func printClients(w io.Writer, r *admin.Clients) {
	if len(r.Clients) == 0 {
		fmt.Fprintln(w, "no client is connected")
		return
	}
	var t cli.Table
	t.Row("client", "user", "connections", "memory", "leases", "leased", "pinned")
	for _, c := range r.Clients {
		t.Row(short(c.Name, 22), fmt.Sprint(c.UID), human.Count(c.Connections), human.Bytes(c.Memory), human.Count(c.Leases), human.Bytes(c.LeaseBytes), human.Bytes(c.PinBytes))
	}
	t.Print(w, "")
	printLeftOut(w, r.LeftOut)
}

func leasesCommand() *cobra.Command {
	return listCommand("leases", "List what clients hold, and for which requests", `List what clients hold in DRAM, most bytes first: prefixes that they read, and blocks
that they are writing. A lease that is not renewed ends when its time is over;
'kvstored revoke --connection N' ends all of a connection at once.`, "/v1/leases", printLeases)
}

func printLeases(w io.Writer, r *admin.Leases) {
	if len(r.Leases) == 0 {
		fmt.Fprintln(w, "nothing is leased")
		return
	}
	var t cli.Table
	t.Row("client", "connection", "for", "chunks", "bytes", "tokens", "age", "ends in")
	for i := range r.Leases {
		l := &r.Leases[i]
		t.Row(short(l.Name, 16), fmt.Sprint(l.Connection), l.Kind, human.Count(l.Chunks), human.Bytes(l.Bytes), human.Count(l.ReadyTokens), ago(l.AgeSeconds), ago(l.ExpiresSeconds))
		t.Row(prompt80(l))
	}
	t.Print(w, "")
	printLeftOut(w, r.LeftOut)
}

func jobsCommand() *cobra.Command {
	return listCommand("jobs", "List the prefetches that still load, and how far they are", `List the prefetches of clients whose prefix may still grow, the oldest first: how
many of the tokens that were found are in DRAM by now, and where those were. Then what
the daemon does by itself: reading what an earlier process left on disk, making its
index anew, a scrub, and writing what is waiting.`, "/v1/jobs", printJobs)
}

func printJobs(w io.Writer, r *admin.Jobs) {
	defer printWork(w, r.Work)
	if len(r.Jobs) == 0 {
		fmt.Fprintln(w, "nothing is being loaded")
		return
	}
	var t cli.Table
	t.Row("client", "connection", "ready", "of tokens", "", "from DRAM", "disk", "remote", "age")
	for i := range r.Jobs {
		l := &r.Jobs[i]
		t.Row(short(l.Name, 16), fmt.Sprint(l.Connection), human.Count(l.ReadyTokens), human.Count(l.FoundTokens), human.Percent(float64(l.ReadyTokens), float64(l.FoundTokens)),
			human.Count(l.Tiers["cpu"]), human.Count(l.Tiers["disk"]), human.Count(l.Tiers["remote"]), ago(l.AgeSeconds))
		t.Row(prompt80(l))
	}
	t.Print(w, "")
	printLeftOut(w, r.LeftOut)
}

// printWork says what the daemon does by itself.
func printWork(w io.Writer, list []admin.Work) {
	for i := range list {
		fmt.Fprintln(w, workText(&list[i]))
	}
}

func workText(of *admin.Work) string {
	amount := func(n uint64) string {
		if of.Unit == "bytes" {
			return human.Bytes(n)
		}
		return human.Plural(n, strings.TrimSuffix(of.Unit, "s"))
	}
	what := map[string]string{
		"recover": "reading what was left in", "rebuild": "making the index anew of", "scrub": "comparing checksums in", "write": "writing to",
	}[of.What]
	text := fmt.Sprintf("%s %s: ", cmp.Or(what, of.What), of.Tier)
	switch {
	case of.What == "write":
		text += amount(of.Of) + " waiting"
	case of.Of > 0:
		text += fmt.Sprintf("%s of %s, %s", amount(of.Done), amount(of.Of), human.Percent(float64(of.Done), float64(of.Of)))
	default:
		text += amount(of.Done) + " so far"
	}
	return text
}

// prompt80 says which prompt a lease is of, in at most 80 columns.
func prompt80(l *admin.Lease) string {
	text := "  " + l.Space
	if l.Model != "" {
		text += " " + short(l.Model, 24)
	}
	if l.LookupID != "" {
		text += ", " + printable(l.LookupID)
	}
	return short(text, 80)
}

// ago is a duration of so many seconds, short.
func ago(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= 2*u.unit {
			return fmt.Sprintf("%d%s", d/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%.3gs", max(0, d.Round(10*time.Millisecond).Seconds()))
}

// short is a text of a client's, printable and cut to so many letters.
func short(s string, most int) string {
	s = cmp.Or(printable(s), "-")
	if r := []rune(s); len(r) > most {
		s = string(r[:most-3]) + "..."
	}
	return s
}

func printLeftOut(w io.Writer, n int) {
	if n > 0 {
		fmt.Fprintf(w, "and %s more\n", human.Count(n))
	}
}
