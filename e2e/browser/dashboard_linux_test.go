package browser_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/need"
	"github.com/kvstored/kvstored/key"
)

// playwright drives the browser; npm exec runs it.
const playwright = "playwright-core@1.65.1"

var screenshots = flag.String("screenshots", "", "folder for pictures of the dashboard; empty: they are thrown away")

// browserCommand is how a script that drives a browser is run. Tests download nothing:
// without npm, playwright in its cache, or chromium they are skipped, except in CI.
func browserCommand(t *testing.T) []string {
	t.Helper()
	command := []string{"npm", "exec", "--yes", "--offline", "--package=" + playwright, "--"}
	chromium := need.Program(t, "chromium", "chromium")
	if out, err := exec.Command(command[0], append(command[1:], "playwright-core", "--version")...).CombinedOutput(); err != nil {
		need.Missing(t, "playwright: %v; npm exec --yes --package=%s -- playwright-core --version brings it\n%s", err, playwright, out)
	}
	return append(command, "env", "CHROMIUM="+chromium, "node")
}

// look has a script look at a page, with a folder for its pictures.
func look(t *testing.T, command []string, script string, args ...string) {
	t.Helper()
	out := *screenshots
	if out == "" {
		out = t.TempDir()
	}
	script, err := filepath.Abs(filepath.Join("testdata", script))
	if err != nil {
		t.Fatal(err)
	}
	browser := exec.CommandContext(t.Context(), command[0], append(append(command[1:], script), append(args, out)...)...)
	text, err := browser.CombinedOutput()
	if err == nil {
		return
	}
	told := false
	for line := range strings.Lines(string(text)) {
		if problem, ok := strings.CutPrefix(line, "problem: "); ok {
			told = true
			t.Error(strings.TrimSpace(problem))
		}
	}
	if !told {
		t.Errorf("%v\n%s", err, text)
	}
}

// serving is what the log says of the page's address.
const serving = `serving admin=(\S+)`

// TestDashboard: while a trace is replayed and clients are at work the page loads in
// chromium, keeps up to date, and can be read and used on wide and narrow screens, in light
// and dark, and with the keyboard; the script has the list.
func TestDashboard(t *testing.T) {
	command := browserCommand(t)
	d := daemon.Start(t, func(cfg *config.Config) {
		cfg.Admin.Listen, cfg.Admin.Dashboard = "127.0.0.1:0", true
		cfg.CPU.Capacity = 32 << 20
	})
	at := regexp.MustCompile(serving).FindStringSubmatch(d.AwaitSaid(serving))[1]
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	clients.Go(func() { converse(ctx, t, d.Socket) })
	clients.Go(func() {
		for file := trace(t, 100); ctx.Err() == nil; {
			if code, _, errs := daemon.Run(t, "", "lab", "replay", "--socket", d.Socket, "--trace", file, "--payload-bytes", "32KiB", "--concurrency", "2"); code != daemon.ExitOK {
				t.Errorf("replay: exit code %d, %s", code, errs)
				return
			}
		}
	})
	if *screenshots == "" { // on a picture it would be taken for a fault
		hostile, err := client.Dial(ctx, d.Socket, client.Options{Inline: true, Name: "<b onclick=alert(1)>engine</b>"})
		if err != nil {
			t.Fatal(err)
		}
		defer hostile.Close()
	}
	look(t, command, "dashboard.mjs", "http://"+at+"/dashboard/")
}

// TestStates: the page of a daemon without a request yet folds its empty cards, and that of
// one without its disk says what is wrong.
func TestStates(t *testing.T) {
	command := browserCommand(t)
	for _, state := range []struct {
		name, health string
		change       func(*config.Config)
	}{
		{"empty", "ready", func(*config.Config) {}},
		{"degraded", "degraded: the disk tier is off: ", func(cfg *config.Config) { cfg.Disk.Paths = []string{"/proc/disk"} }},
	} {
		d := daemon.Start(t, func(cfg *config.Config) { cfg.Admin.Listen, cfg.Admin.Dashboard = "127.0.0.1:0", true }, state.change)
		at := regexp.MustCompile(serving).FindStringSubmatch(d.AwaitSaid(serving))[1]
		look(t, command, "state.mjs", "http://"+at+"/dashboard/", state.name, state.health)
	}
}

// trace is a file with a trace of people who come back with longer prompts.
func trace(t *testing.T, requests int) string {
	t.Helper()
	var b bytes.Buffer
	rng := rand.New(rand.NewPCG(24, 1))
	turns := make([]int, 40)
	for i := range requests {
		who := rng.IntN(len(turns))
		turns[who]++
		ids := []int{0, 1}
		for n := range min(2*turns[who], 16) {
			ids = append(ids, 100*(who+1)+n)
		}
		list, _ := json.Marshal(ids) // of numbers
		fmt.Fprintf(&b, `{"timestamp": %d, "input_length": %d, "output_length": 1, "hash_ids": %s}`+"\n", i, 512*len(ids)-rng.IntN(500), list)
	}
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// converse has a client ask for conversations that grow, more than DRAM has room for, pin
// one, and ask for one that is never stored, until ctx ends.
func converse(ctx context.Context, t *testing.T, socket string) {
	space := key.Space{Model: "example/chat-8b", DType: "bf16", World: 1, ChunkTokens: 16, Method: key.SHA256}
	c, err := client.Dial(ctx, socket, client.Options{Space: &space, Name: "vllm-0"})
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	for i := 0; ctx.Err() == nil; i++ {
		if err := turn(ctx, c, i*i%61, 1+i/61%12); err != nil && ctx.Err() == nil {
			t.Error(err)
			return
		}
		if i == 5 {
			j, err := c.Prefetch(ctx, client.Tokens(prefixOf(99, 1)), client.PrefetchOptions{LookupID: "request-1f0e6c52-a-name-as-long-as-those-of-engines"})
			if err == nil {
				err = j.Release(ctx)
			}
			if err != nil {
				t.Error(err)
			}
			if _, err := c.Pin(ctx, client.Tokens(prefixOf(0, 1)), "system-prompt", time.Hour); err != nil {
				t.Error(err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond): // at the pace of an engine
		}
	}
}

// turn asks for a turn of a conversation, and stores its new chunks.
func turn(ctx context.Context, c *client.Client, who, n int) error {
	tokens := prefixOf(who, n)
	p := client.Tokens(tokens)
	j, err := c.Prefetch(ctx, p, client.PrefetchOptions{LookupID: fmt.Sprintf("chat-%d", who), PrefillRate: 2000})
	if err != nil {
		return err
	}
	ready, err := j.Wait(ctx, math.MaxInt64)
	if err != nil {
		return err
	}
	if err := j.Release(ctx); err != nil {
		return err
	}
	var payloads [][]byte
	first := int(ready.Ready.Chunks)
	for range len(tokens)/16 - first {
		payloads = append(payloads, bytes.Repeat([]byte{7}, 64<<10))
	}
	if len(payloads) > 0 {
		_, err = c.Put(ctx, p, first, payloads)
	}
	return err
}

// prefixOf is the tokens of a conversation up to a turn; 64 all have in common.
func prefixOf(who, n int) []uint32 {
	tokens := make([]uint32, 64+32*n)
	for i := range tokens {
		if tokens[i] = uint32(i); i >= 64 {
			tokens[i] += uint32(1000 * (who + 1))
		}
	}
	return tokens
}
