package daemon

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// The names of the statistics that are 0 of a daemon at rest are there, are not 0
// while a client holds something of what they count, and are 0 once it has left.
func TestNothingIsHeldAtRest(t *testing.T) {
	names := atRest(t)
	d := serve(t, smallConfig(t))
	looker, holder := dial(t, d), dial(t, d)
	if _, err := holder.Put(t.Context(), client.Tokens([]uint32{1, 2, 3, 4}), 0, [][]byte{{1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Prefetch(t.Context(), client.Tokens([]uint32{1, 2, 3, 4}), client.PrefetchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Reserve(t.Context(), client.Tokens([]uint32{5, 6, 7, 8}), client.ReserveOptions{Count: 1, Size: 4096}); err != nil {
		t.Fatal(err)
	}
	held := statistics(t, looker, names)
	for _, name := range []string{"server.leases_live", "store.protected_bytes"} {
		if held[name] == 0 {
			t.Errorf("%s is 0 while a client holds a lease and a fill: %v", name, held)
		}
	}
	holder.Close()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		rest := statistics(t, looker, names)
		var sum float64
		for _, n := range rest {
			sum += n
		}
		if sum == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("at rest: %v", rest)
		}
	}
}

// atRest is the names that the document says are 0 at rest, as part.name.
func atRest(t *testing.T) (names []string) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/protocol-more.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "of a daemon at rest (no client holds anything) these are 0: ")
	sentence, _, found := strings.Cut(rest, ".\n")
	for _, part := range strings.Split(sentence, ", ") {
		of := regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(part, -1)
		for _, name := range of[:max(0, len(of)-1)] {
			names = append(names, of[len(of)-1][1]+"."+name[1])
		}
	}
	if !found || len(names) < 2 {
		t.Fatalf("the document names %v", names)
	}
	return names
}

// statistics reads some names of the statistics.
func statistics(t *testing.T, c *client.Client, names []string) map[string]float64 {
	t.Helper()
	raw, err := c.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, name := range names {
		part, key, _ := strings.Cut(name, ".")
		in, _ := all[part].(map[string]any)
		n, ok := in[key].(float64)
		if !ok {
			t.Fatalf("the statistics have no number %s", name)
		}
		out[name] = n
	}
	return out
}

// TestDefaultsAreTold: what hello tells of a daemon that configures none of it is what the
// document says, and another setting is told too.
func TestDefaultsAreTold(t *testing.T) {
	cfg := smallConfig(t)
	cfg.Prefetch = config.Default().Prefetch
	l := limitsOf(t, serve(t, cfg))
	told := map[string]uint32{
		"lease_ms": l.LeaseMillis, "pin_ms": l.PinMillis, "prefetch_ms": l.PrefetchMillis, "prefetch_us_per_1024": l.PrefetchMicrosPer1024,
		"hello_ms": l.HelloMillis, "stall_ms": l.StallMillis, "user_jobs": l.UserJobs, "unread_bytes": l.UnreadBytes,
		"chunk_tokens": l.ChunkTokens, "spin_us": l.SpinMicros,
	}
	doc, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "| told by hello | by default | |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		names := regexp.MustCompile("`([a-z_0-9]+)`").FindAllStringSubmatch(cells[0], -1)
		for i, value := range strings.Fields(cells[min(1, len(cells)-1)]) {
			n, err := strconv.ParseUint(strings.ReplaceAll(value, ",", ""), 10, 32)
			if err != nil || i >= len(names) {
				break // a row without numbers
			}
			if name := names[i][1]; told[name] != uint32(n) {
				t.Errorf("%s is %d, the document says %d", name, told[name], n)
			} else {
				delete(told, name)
			}
		}
	}
	if len(told) > 0 {
		t.Errorf("the document does not tell, or wrongly: %v", told)
	}

	cfg = smallConfig(t)
	cfg.Lease.MaxAge, cfg.Prefetch.Deadline, cfg.Prefetch.Per1024Tokens = time.Minute, 3*time.Second, time.Millisecond
	cfg.Chunk.Tokens = 32
	l = limitsOf(t, serve(t, cfg))
	if l.LeaseMillis != 60_000 || l.PrefetchMillis != 3_000 || l.PrefetchMicrosPer1024 != 1_000 || l.ChunkTokens != 32 {
		t.Errorf("told %+v", l)
	}
}

// limitsOf is what a daemon tells of its limits in hello.
func limitsOf(t *testing.T, d *Daemon) wire.Limits {
	t.Helper()
	for { // until it has started
		nc, err := net.Dial("unix", d.cfg.Listen.Socket)
		if err != nil {
			t.Fatal(err)
		}
		c, err := wire.NewConn(nc)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(wire.AppendRequest(nil, wire.OpHello, 1, &wire.HelloRequest{MinVersion: wire.Version, MaxVersion: wire.Version})); err != nil {
			t.Fatal(err)
		}
		h, body, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		var m wire.HelloReply
		if h.Code == wire.CodeOK {
			err = m.Decode(body)
		}
		_ = c.Close()
		if err != nil || h.Code == wire.CodeOK {
			if err != nil {
				t.Fatal(err)
			}
			return m.Limits
		}
		time.Sleep(time.Millisecond)
	}
}

// An epoch is one start of the daemon: its clients are told the same, those of the
// next another. Jobs, fills and kept chains of before are unknown there.
func TestEpochIsOneStart(t *testing.T) {
	cfg := smallConfig(t)
	var epochs []uint64
	var job *client.Job
	for range 2 {
		t.Run("start", func(t *testing.T) {
			d := serve(t, cfg)
			c, other := dial(t, d), dial(t, d)
			if c.Epoch() == 0 || c.Epoch() != other.Epoch() {
				t.Errorf("two clients of one daemon: epochs %d and %d", c.Epoch(), other.Epoch())
			}
			epochs = append(epochs, c.Epoch())
			p := client.Tokens([]uint32{1, 2, 3, 4})
			if job != nil {
				if _, err := c.Lookup(t.Context(), job.Prompt(), 0); !errors.Is(err, client.ErrUnknownJob) {
					t.Errorf("a job of the daemon before: %v", err)
				}
				return
			}
			if _, err := c.Put(t.Context(), p, 0, [][]byte{{1}}); err != nil {
				t.Fatal(err)
			}
			var err error
			if job, err = c.Prefetch(t.Context(), p, client.PrefetchOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Lookup(t.Context(), job.Prompt(), 0); err != nil {
				t.Errorf("a live job: %v", err)
			}
		})
	}
	if epochs[0] == epochs[1] {
		t.Errorf("two starts have the epoch %d", epochs[0])
	}
}

// Where the disk has a chunk whose parent was lost before the daemon was started
// anew, a put of other bytes is told differs, and the older ones are read from then on.
func TestOlderBytesBelow(t *testing.T) {
	cfg := smallConfig(t)
	space := key.Space{Model: "m", World: 1, DType: "x", ChunkTokens: 4, Method: key.Given}
	both := client.Hashes(16, []byte("parent.........1kid............2"), []uint32{4, 4})
	older, newer := []byte("older bytes"), []byte("newer bytes, and more")
	session := func(name string, do func(t *testing.T, c *client.Client)) {
		t.Run(name, func(t *testing.T) {
			d := serve(t, cfg)
			c, err := client.Dial(t.Context(), d.cfg.Listen.Socket, client.Options{Space: &space})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			do(t, c)
		})
	}
	session("stored", func(t *testing.T, c *client.Client) {
		if _, err := c.Put(t.Context(), both, 0, [][]byte{{1}, older}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Flush(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		parent := client.Hashes(16, []byte("parent.........1"), []uint32{4})
		if _, err := c.DeletePrompt(t.Context(), parent); err != nil {
			t.Fatal(err)
		}
	})
	read := func(t *testing.T, c *client.Client) {
		chunks, err := c.Get(t.Context(), both, client.GetOptions{First: 1})
		if err != nil || len(chunks) != 1 {
			t.Fatalf("%d chunks, %v", len(chunks), err)
		}
		if got := string(chunks[0].Bytes); got != string(older) {
			t.Errorf("not the older bytes: %q", got)
		}
	}
	session("started anew", func(t *testing.T, c *client.Client) {
		rs, err := c.Put(t.Context(), both, 0, [][]byte{{1}, newer})
		if err != nil || len(rs) != 2 {
			t.Fatalf("%v, %v", rs, err)
		}
		if code := rs[1].Code; code != client.ResultDiffers {
			t.Errorf("a put over what is below: %s", code)
		}
		read(t, c)
	})
	session("once more", read)
}
