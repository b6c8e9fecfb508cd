package main

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/key"
)

// TestWhoHoldsWhat: clients, leases and jobs tell of a client and its leases, and list prefixes of
// prefixes and their use; the tables fit 80 columns.
func TestWhoHoldsWhat(t *testing.T) {
	d := serveHere(t)
	for _, name := range []string{"leases", "jobs", "prefixes"} {
		if out := must(t, "", "list", name); !strings.HasPrefix(out, "no") {
			t.Errorf("%s of an idle daemon:\n%s", name, out)
		}
	}
	for i := range 3 { // two chunks in common, and one each
		must(t, kv(1, 2)+kv(20+i, 1), "put", "--chunk-tokens", "1", "--tokens", fmt.Sprintf("1,2,%d", 10+i))
	}
	space := key.Space{Model: strings.Repeat("a long name of a model/", 5), DType: "b", World: 1, ChunkTokens: 4, Method: key.SHA256}
	c, err := client.Dial(t.Context(), d.socket, client.Options{Space: &space, Name: "engine\x1b[2J of a long name " + strings.Repeat("x", 60)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all := client.Tokens([]uint32{1, 2, 3, 4, 5, 6, 7, 8})
	if _, err := c.Put(t.Context(), all, 0, [][]byte{noise(1, 4096), noise(2, 4096)}); err != nil {
		t.Fatal(err)
	}
	j, err := c.Prefetch(t.Context(), all, client.PrefetchOptions{LookupID: "request-7"})
	if err != nil {
		t.Fatal(err)
	}
	clients := read[admin.Clients](t, "list", "clients")
	if of := clients.Clients[0]; of.Connections != 1 || of.Leases != 1 || of.LeaseBytes == 0 || of.Memory == 0 { // others hold less
		t.Errorf("%+v", clients)
	}
	id := c.Space().ID()
	leases := read[admin.Leases](t, "list", "leases")
	if len(leases.Leases) != 1 {
		t.Fatalf("%+v", leases)
	}
	if l := leases.Leases[0]; l.Kind != "read" || l.LookupID != "request-7" || l.ReadyTokens != 8 || l.FoundTokens != 8 || l.Tiers["cpu"] != 8 || l.Loading || l.Space != hex.EncodeToString(id[:]) || l.ExpiresSeconds <= 0 {
		t.Errorf("%+v", l)
	}
	if jobs := read[admin.Leases](t, "list", "jobs"); len(jobs.Leases) != 0 {
		t.Errorf("all is there, and still %+v", jobs)
	}
	for _, name := range []string{"clients", "leases", "jobs", "claims", "prefixes"} {
		fits80(t, must(t, "", "list", name))
	}
	if err := j.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkLs(t, hex.EncodeToString(id[:]))
}

// checkLs: the prefix that was asked for is hot, and what three prompts have in common is
// one prefix with three behind it.
func checkLs(t *testing.T, hot string) {
	t.Helper()
	all := read[admin.Prefixes](t, "list", "prefixes")
	if len(all.Prefixes) != 2 {
		t.Fatalf("%d prefixes begin prompts: %+v", len(all.Prefixes), all)
	}
	var common, asked admin.Prefix
	for _, p := range all.Prefixes {
		if p.Space == hot {
			asked = p
		} else {
			common = p
		}
	}
	if asked.Heat < 0.9 || asked.Heat > 1 || asked.IdleSeconds == nil || asked.Chunks != 2 || asked.DRAMBytes != asked.Bytes {
		t.Errorf("asked for: %+v", asked)
	}
	if common.Branches != 3 || common.Own != 2 || common.Chunks != 5 || common.Heat < 1.9 || common.Heat > 2 { // the later two found it
		t.Errorf("in common: %+v", common)
	}
	behind := read[admin.Prefixes](t, "list", "prefixes", common.Hash[:12])
	if len(behind.Prefixes) != 3 || behind.Prefixes[0].Depth != 2 || behind.Prefixes[0].Above != common.Hash {
		t.Errorf("behind it: %+v", behind)
	}
	if every := read[admin.Prefixes](t, "list", "prefixes", "--all", "--by", "depth", "--limit", "2"); len(every.Prefixes) != 2 || every.Prefixes[0].Depth != 2 || every.Next != "2" {
		t.Errorf("the deepest: %+v", every)
	}
	if only := read[admin.Prefixes](t, "list", "prefixes", "--space", hot, "--by", "heat"); len(only.Prefixes) != 1 {
		t.Errorf("of one space: %+v", only)
	}
	fails(t, exitUsage, "give one of bytes", "list", "prefixes", "--by", "size")
	fails(t, exitUsage, "from 1 to", "list", "prefixes", "--limit", "0")
	fails(t, exitUsage, "accepts at most 1", "list", "prefixes", "a", "b")
	fails(t, exitUsage, "any depth already", "list", "prefixes", "--all", "ab")
	fails(t, exitFailure, "no prefix begins", "list", "prefixes", "zz")
	fails(t, exitFailure, "is no space", "list", "prefixes", "--space", "m")
	for _, name := range []string{"clients", "leases", "jobs"} {
		fails(t, exitUsage, "unknown command", "list", name, "1000")
		fails(t, exitUsage, "unknown flag", "list", name, "--uid", "1000")
		fails(t, exitUsage, "invalid argument", "list", name, "--json=yes")
		fails(t, exitUnreachable, "no such file", "list", name, "--admin-socket", "/none")
		fails(t, exitUnreachable, "no such file", "list", name, "--socket", "/none")
	}
}

// fits80 checks that each line has at most 80 columns, and no control character.
func fits80(t *testing.T, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if utf8.RuneCountInString(line) > 80 || strings.ContainsAny(line, "\x1b\r") {
			t.Errorf("%d columns: %q", utf8.RuneCountInString(line), line)
		}
	}
}

// TestWorkText: what jobs says of each kind of work.
func TestWorkText(t *testing.T) {
	for _, c := range []struct {
		of   admin.Work
		want string
	}{
		{admin.Work{What: "recover", Tier: "disk", Done: 1200, Unit: "records"}, "reading what was left in disk: 1,200 records so far"},
		{admin.Work{What: "rebuild", Tier: "disk", Done: 1 << 20, Of: 4 << 20, Unit: "bytes"}, "making the index anew of disk: 1.0 MiB of 4.0 MiB, 25.0 %"},
		{admin.Work{What: "write", Tier: "remote", Of: 1, Unit: "chunks"}, "writing to remote: 1 chunk waiting"},
		{admin.Work{What: "dream", Tier: "cpu", Done: 3, Unit: "dreams"}, "dream cpu: 3 dreams so far"},
	} {
		if got := workText(&c.of); got != c.want {
			t.Errorf("%+v: %q, want %q", c.of, got, c.want)
		}
	}
}
