package main

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/key"
)

// TestSpaces: an operator who knows only the model finds its space, and forgets
// it by the id that is shown.
func TestSpaces(t *testing.T) {
	d := serveHere(t)
	if out := must(t, "", "list", "spaces"); !strings.HasPrefix(out, "nothing is stored") {
		t.Errorf("spaces of an empty daemon: %s", out)
	}
	must(t, kv(1, 4), prompt("put", 1, 4)...)
	must(t, kv(2, 2), prompt("put", 2, 2, "--model", "other", "--salt", "secret")...)
	ranked := key.Space{Model: "ranked\x1b[31m", DType: "bf16", World: 2, Worker: 1, ChunkTokens: 16, Method: "given:engine", LoRA: "law", Tags: []key.Tag{{Name: "layout", Value: "hnd"}}}
	c, err := client.Dial(t.Context(), d.socket, client.Options{Space: &ranked})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	rows := make(map[string]admin.Space)
	for _, r := range read[admin.Spaces](t, "list", "spaces").Spaces {
		if r.Opened == nil {
			t.Fatalf("not opened: %+v", r)
		}
		rows[r.Opened.Model] = r
	}
	id := c.Space().ID()
	if r := rows[ranked.Model]; r.Space != hex.EncodeToString(id[:]) || r.Connections != 1 || r.Chunks != 0 || r.Opened.Worker != 1 || r.Opened.Tags["layout"] != "hnd" {
		t.Errorf("%+v %+v", r, r.Opened)
	}
	if r := rows["other"]; r.Chunks != 2 || r.HotBytes != 2*adminChunk || r.DiskBytes != 0 || !r.Opened.Salted || r.Opened.ChunkTokens != 1 {
		t.Errorf("%+v %+v", r, r.Opened)
	}
	out := must(t, "", "list", "spaces")
	for _, want := range []string{
		"hands-on", "\nother ", "\n  " + rows["other"].Space + ", bytes, 1 token a chunk, salted\n", "128 KiB",
		`"ranked\x1b[31m" `, hex.EncodeToString(id[:]) + ", bf16, 16 tokens a chunk, rank 1 of 2, LoRA law, given:engine, layout=hnd\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out+must(t, "", "list", "spaces", "--json"), "secret") {
		t.Errorf("the salt shows:\n%s", out)
	}

	must(t, "", "forget", "--space", rows["other"].Space, "--yes")
	for _, r := range read[admin.Spaces](t, "list", "spaces").Spaces {
		if want := map[string]int64{"hands-on": 4}[r.Opened.Model]; r.Chunks != want {
			t.Errorf("after that %s has %d chunks, want %d", r.Opened.Model, r.Chunks, want)
		}
	}
}

// TestSpacesFit: with names as they are, the table fits a terminal, and tells
// the chunks of each tier.
func TestSpacesFit(t *testing.T) {
	for _, model := range []string{"m", "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", strings.Repeat("x", 100)} {
		var out strings.Builder
		use := admin.Space{
			Space: strings.Repeat("0", 32), Chunks: 123_456_789, Connections: 1024, HotBytes: 1000 << 30, DiskBytes: 12 << 30,
			Opened: &admin.Opened{
				Model: model, Revision: strings.Repeat("c", 40), DType: "bfloat16", World: 16, Worker: 15, ChunkTokens: 1024, Method: string(key.SHA256),
			},
		}
		if err := printSpaces(&out, &spaceList{[]admin.Space{use, {}}}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if len(line) > 120 {
				t.Errorf("%d columns: %s", len(line), line)
			}
		}
		if row := strings.Split(out.String(), "\n")[1]; !strings.HasSuffix(row, " 1,024  123,456,789  1000 GiB   12 GiB") {
			t.Errorf("%q", row)
		}
	}
}

// TestSpaceTitles: the title of a space that no client has opened.
func TestSpaceTitles(t *testing.T) {
	for want, u := range map[string]admin.Space{
		"(not opened since the start)":            {Chunks: 3},
		"(open, but one of too many to remember)": {Connections: 1},
		"(values of the resp front end)":          {Front: "resp"},
		"m":                                       {Opened: &admin.Opened{Model: "m", Revision: "main", World: 1, Group: "g", Method: string(key.XXH64)}},
		strings.Repeat("é", 45) + "...":           {Opened: &admin.Opened{Model: strings.Repeat("é", 49), Method: string(key.SHA256)}},
	} {
		if got := title(&u); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
