package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/human"
)

func listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List clients, leases, jobs, claims, spaces or prefixes",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	clients, _ := listed("clients", "List the clients, and what they hold", `List the clients of the protocol by what they hold in DRAM: connections of one user
under one name together. Memory is what they take outside DRAM's memory file;
'kvstored list leases' lists what is leased, 'kvstored list claims' what is pinned.
Clients of front ends are counted by 'kvstored stats'.`, "/v1/clients", printClients)
	leases, at := listed("leases", "List what clients hold, and for which requests", `List what clients hold in DRAM, most bytes first: prefixes that they read, and blocks
that they are writing. A lease that is not renewed ends when its time is over. --revoke
ends every lease, fill and pin of a connection at once: what was freed stays stored
until it is evicted, and a client that reads under it learns that, and recomputes.`, "/v1/leases", printLeases)
	var connection uint64
	leases.Flags().Uint64Var(&connection, "revoke", 0, "free everything that this connection holds")
	revoking(leases, at, "revoke", &admin.ClaimRequest{Connection: &connection})
	jobs, _ := listed("jobs", "List the prefetches that still load, and how far they are", `List the prefetches of clients whose prefix may still grow, the oldest first: how
many of the tokens that were found are in DRAM by now, and where those were. Then what
the daemon does by itself: reading what an earlier process left on disk, making its
index anew, a scrub, and writing what is waiting.`, "/v1/leases?loading=true", printJobs)
	cmd.AddCommand(clients, leases, jobs, claimsCommand(), spacesCommand(), prefixesCommand())
	return cmd
}

// listed is a command that prints one answer of the admin.socket.
func listed[R any](use, short, long, path string, print func(io.Writer, *R) error) (*cobra.Command, *adminFlags) {
	cmd := &cobra.Command{Use: use, Short: short, Long: long + "\nIt takes an admin.", Args: cobra.NoArgs}
	return cmd, asking(cmd, func(ctx context.Context, c *admin.Client, _ []string) (*R, error) {
		r := new(R)
		return r, c.Get(ctx, path, r)
	}, print)
}

// revoking has a command that lists free what one of its flags names.
func revoking(cmd *cobra.Command, at *adminFlags, flag string, what *admin.ClaimRequest) {
	what.Action = "revoke"
	otherwise := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f := cmd.Flags().Lookup(flag); !f.Changed || f.Value.Type() == "bool" && f.Value.String() == "false" {
			return otherwise(cmd, args)
		}
		return answer(cmd, at, func(ctx context.Context, c *admin.Client) (*admin.Chunks, error) {
			r := new(admin.Chunks)
			return r, c.Do(ctx, "POST", "/v1/claims", what, r)
		}, func(w io.Writer, r *admin.Chunks) error {
			fmt.Fprintf(w, "%s freed\n", human.Plural(r.Chunks, "chunk"))
			if what.Scope != "" && r.Chunks == 0 {
				return fmt.Errorf("nothing is pinned as %q; 'kvstored list claims' lists the names", what.Scope)
			}
			return nil
		})
	}
}

func claimsCommand() *cobra.Command {
	cmd, at := listed("claims", "List what is pinned, and what clients have asked to be kept", `List the pins, the connections that hold something, and what clients and
orchestrators retain: that goes last, and is evicted all the same where there is
nothing else. --revoke frees the pins of a name, --revoke-all all pins: what was freed
stays stored until it is evicted.`, "/v1/claims", printClaims)
	cmd.Example = "  kvstored list claims --revoke system-prompt"
	byName := new(admin.ClaimRequest)
	cmd.Flags().StringVar(&byName.Scope, "revoke", "", "free the pins of this name")
	cmd.Flags().Bool("revoke-all", false, "free all pins")
	cmd.MarkFlagsMutuallyExclusive("revoke", "revoke-all")
	_ = cmd.RegisterFlagCompletionFunc("revoke", completePins(at))
	revoking(cmd, at, "revoke", byName)
	revoking(cmd, at, "revoke-all", &admin.ClaimRequest{AllPins: true})
	return cmd
}

func printClaims(w io.Writer, r *admin.Claims) error {
	var pins, holders, retains human.Table
	pins.Row("pin", "connection", "chunks", "bytes", "ends in")
	for _, p := range r.Pins {
		pins.Row(short(p.Name, 34), fmt.Sprint(p.Connection), human.Count(p.Chunks), human.Bytes(p.Bytes), ago(p.ExpiresSeconds))
		pins.Row("  " + p.Space)
	}
	holders.Row("client", "connection", "user", "leases, fills", "pins")
	for _, h := range r.Holders {
		holders.Row(short(h.Name, 28), fmt.Sprint(h.Connection), fmt.Sprint(h.UID), human.Bytes(h.LeaseBytes), human.Bytes(h.PinBytes))
	}
	retains.Row("retained as", "user", "chunks", "bytes", "ends in")
	for _, h := range r.Retained {
		retains.Row(short(h.Name, 22), fmt.Sprint(h.UID), human.Count(h.Chunks), human.Bytes(h.Bytes), ago(h.ExpiresSeconds))
		retains.Row("  " + h.Space)
	}
	for _, t := range []struct {
		rows    int
		table   *human.Table
		nothing string
	}{{len(r.Pins), &pins, "nothing is pinned\n"}, {len(r.Holders), &holders, ""}, {len(r.Retained), &retains, "nothing is retained\n"}} {
		if t.rows > 0 {
			t.table.Print(w, "")
		} else {
			fmt.Fprint(w, t.nothing)
		}
	}
	printLeftOut(w, r.LeftOut)
	return nil
}

func printClients(w io.Writer, r *admin.Clients) error {
	if len(r.Clients) == 0 {
		fmt.Fprintln(w, "no client is connected")
		return nil
	}
	var t human.Table
	t.Row("client", "user", "connections", "memory", "leases", "leased", "pinned")
	for _, c := range r.Clients {
		t.Row(short(c.Name, 22), fmt.Sprint(c.UID), human.Count(c.Connections), human.Bytes(c.Memory), human.Count(c.Leases), human.Bytes(c.LeaseBytes), human.Bytes(c.PinBytes))
	}
	t.Print(w, "")
	printLeftOut(w, r.LeftOut)
	return nil
}

func printLeases(w io.Writer, r *admin.Leases) error {
	if len(r.Leases) == 0 {
		fmt.Fprintln(w, "nothing is leased")
		return nil
	}
	var t human.Table
	t.Row("client", "connection", "for", "chunks", "bytes", "tokens", "age", "ends in")
	for i := range r.Leases {
		l := &r.Leases[i]
		t.Row(short(l.Name, 16), fmt.Sprint(l.Connection), l.Kind, human.Count(l.Chunks), human.Bytes(l.Bytes), human.Count(l.ReadyTokens), ago(l.AgeSeconds), ago(l.ExpiresSeconds))
		t.Row(prompt80(l))
	}
	t.Print(w, "")
	printLeftOut(w, r.LeftOut)
	return nil
}

func printJobs(w io.Writer, r *admin.Leases) error {
	defer func() { // what the daemon does by itself
		for i := range r.Work {
			fmt.Fprintln(w, workText(&r.Work[i]))
		}
	}()
	if len(r.Leases) == 0 {
		fmt.Fprintln(w, "nothing is being loaded")
		return nil
	}
	var t human.Table
	t.Row("client", "connection", "ready", "of tokens", "", "from DRAM", "disk", "remote", "age")
	for i := range r.Leases {
		l := &r.Leases[i]
		t.Row(short(l.Name, 16), fmt.Sprint(l.Connection), human.Count(l.ReadyTokens), human.Count(l.FoundTokens), human.Percent(float64(l.ReadyTokens), float64(l.FoundTokens)),
			human.Count(l.Tiers["cpu"]), human.Count(l.Tiers["disk"]), human.Count(l.Tiers["remote"]), ago(l.AgeSeconds))
		t.Row(prompt80(l))
	}
	t.Print(w, "")
	printLeftOut(w, r.LeftOut)
	return nil
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
