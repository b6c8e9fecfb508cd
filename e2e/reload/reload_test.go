package reload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/internal/admin"
	product "github.com/kvstored/kvstored/internal/daemon"
)

var (
	reloadEdits = flag.Int("reload-edits", 100, "edits of the configuration file in TestReloadUnderLoad")
	reloadSeed  = flag.Uint64("reload-seed", 1, "seed of those edits")
)

// reloadRig is a daemon whose file is edited, and the file as it was at first,
// a key a line.
type reloadRig struct {
	t     *testing.T
	d     *daemon.Daemon
	c     *client.Client
	lines []string
	from  int // in the log, where the last reload begins
	read  int // bytes of the log that were looked at

	stored uint64 // prompts
	prompt *client.Prompt
}

func newReloadRig(t *testing.T, change func(*config.Config)) *reloadRig {
	r := &reloadRig{t: t}
	r.d = daemon.Start(t, func(c *config.Config) {
		c.Log.Format = "json"
		change(c)
	})
	text, err := os.ReadFile(r.d.Config)
	if err != nil {
		t.Fatal(err)
	}
	r.lines = strings.Split(strings.TrimSpace(string(text)), "\n")
	if r.c, err = client.Dial(t.Context(), r.d.Socket, client.Options{Inline: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.c.Close() })
	return r
}

// config is what the daemon says of its configuration.
func (r *reloadRig) config() (v admin.Config) {
	r.t.Helper()
	raw, err := r.c.Stats(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	var st struct{ Config *admin.Config }
	st.Config = &v
	if err := json.Unmarshal(raw, &st); err != nil {
		r.t.Fatal(err)
	}
	return v
}

// reload sends SIGHUP, and returns the configuration before and after, and what
// was logged of it.
func (r *reloadRig) reload() (before, after admin.Config, log string) {
	r.t.Helper()
	before = r.config()
	r.d.Signal(syscall.SIGHUP)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if after = r.config(); after.Reloads+after.ReloadsBad > before.Reloads+before.ReloadsBad {
			break
		}
		if time.Now().After(end) {
			r.t.Fatal("the daemon does not reload")
		}
	}
	text := r.d.Said()
	log, r.from, r.read = text[r.read:], r.read, len(text)
	return before, after, log
}

// says waits until the log says something since the last reload began: its lines are written
// aside, after the reload is counted.
func (r *reloadRig) says(what *regexp.Regexp) bool {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if what.MatchString(r.d.Said()[r.from:]) {
			return true
		}
	}
	return false
}

// set has the file be the first one with other values, by path, and reloads it.
func (r *reloadRig) set(values map[string]string) (after admin.Config, log string) {
	r.t.Helper()
	lines := slices.Clone(r.lines)
	for path, value := range values {
		i := slices.Index(pathsOf(lines), path)
		if i < 0 {
			r.t.Fatalf("there is no key %s", path)
		}
		lines[i] = withValue(lines[i], value)
	}
	r.write(lines)
	_, after, log = r.reload()
	return after, log
}

func (r *reloadRig) write(lines []string) {
	r.t.Helper()
	if err := os.WriteFile(r.d.Config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// pathsOf names the key of each line of a printed configuration; "" for a
// section.
func pathsOf(lines []string) []string {
	var stack, paths []string
	for _, line := range lines {
		text := strings.TrimLeft(line, " ")
		key, value, _ := strings.Cut(text, ":")
		stack = append(stack[:(len(line)-len(text))/2], key)
		if paths = append(paths, ""); value != "" {
			paths[len(paths)-1] = strings.Join(stack, ".")
		}
	}
	return paths
}

func withValue(line, value string) string {
	key, _, _ := strings.Cut(line, ":")
	return key + ": " + value
}

// valuesOf is a printed configuration by path.
func valuesOf(text string) map[string]string {
	lines := folded(strings.Split(strings.TrimSpace(text), "\n"))
	values := make(map[string]string)
	for i, path := range pathsOf(lines) {
		if path != "" {
			_, value, _ := strings.Cut(lines[i], ":")
			values[path] = strings.TrimSpace(value)
		}
	}
	return values
}

// folded has each list of mappings in the line of its key.
func folded(lines []string) (out []string) {
	list := -1 // how far the list at hand is indented
	for _, line := range lines {
		text := strings.TrimLeft(line, " ")
		indent := len(line) - len(text)
		switch {
		case strings.HasPrefix(text, "- "):
			list = indent
		case indent <= list:
			list = -1
		}
		if list < 0 {
			out = append(out, line)
		} else {
			out[len(out)-1] += " " + text
		}
	}
	return out
}

// liveKeys are the keys that docs/reference/configuration.md says a reload applies.
func liveKeys(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(daemon.Root(), "docs", "reference", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	live := make(map[string]bool)
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)` \\|[^|]*\\| ([^|]*) \\|").FindAllStringSubmatch(string(text), -1) {
		if row[2] != "" {
			live[row[1]] = true
		}
	}
	return live
}

// editor makes random edits, good and bad ones, of any key.
type editor struct {
	*rand.Rand
	careful  bool // the edit at hand
	lines    []string
	password string // a file that can be used
}

// reloadValues are values with which the load of the test goes on: with less a
// request may be refused, and rightly so.
var reloadValues = map[string][]string{
	"lease.max_age":    {"10s", "1m", "10m", "0s", "-1s", "soon", "7"},
	"cpu.policy":       {"lru", "lfu", "s3fifo", "arc", "tenure", "best"},
	"disk.policy":      {"lru", "fifo", "lfu", "arc", "best"},
	"log.level":        {"trace", "debug", "info", "warn", "error", "loud"},
	"prefetch.policy":  {"timeout", "best_effort", "wait_complete", "later"},
	"chunk.hash":       {"sha256", "xxh64", "md5"},
	"listen.resp_full": {"drop", "error", "sometimes"},
	"access":           {`[{uids: [12345], match: "m-*", rights: [read, write]}]`, `[{uids: [12346], match: "m", rights: [none]}, {uids: [12346], match: "*", rights: [admin]}]`, `[{uids: [12345], match: "m", rights: [read], map: true}]`, `[{uids: [0], match: "*"}]`},
	"spaces":           {`[{match: "crash", quota: 64MiB}]`, `[{match: "*", quota: 1GiB}]`, "[]", `[{match: "a"}]`, "7"},
}

// other is a value for a key that has one, by its look.
func (e *editor) other(path, value string) string {
	choices := reloadValues[path]
	switch {
	case path == "listen.resp_password_file":
		choices = []string{`""`, e.password, e.password + "-gone", "relative"}
	case choices != nil:
	case value == "true" || value == "false":
		choices = []string{"true", "false", "maybe"}
	case regexp.MustCompile(`^(\d+(\.\d+)?(ns|us|ms|s|m|h))+$`).MatchString(value):
		choices = []string{"5s", "1m", "90s", "1h", "0s", "-1s", "soon"}
	case regexp.MustCompile(`^0\.\d+$`).MatchString(value):
		choices = []string{"0.3", "0.7", "0.93", "0.97", "1.5", "-0.1", "much"}
	case regexp.MustCompile(`^\d+[KMGT]?i?B?$`).MatchString(value):
		choices = []string{"16", "64MiB", "256MiB", "1GiB", "2GiB", "0", "1", "-3", "12parsecs", "[]"}
	case strings.HasPrefix(value, "["):
		choices = []string{"[]", "[7]", "[7, 8]", "[/tmp/a]", "seven", "[a: b]"}
	default:
		choices = []string{`""`, "/tmp/x", "nonsense", "[1]"}
	}
	if e.careful { // good ones come first
		choices = choices[:(len(choices)+1)/2]
	}
	return choices[e.IntN(len(choices))]
}

// edit is the next content of the file.
func (e *editor) edit() []string {
	lines, paths := slices.Clone(e.lines), pathsOf(e.lines)
	e.careful = e.IntN(2) == 0
	for range 1 + e.IntN(5) {
		i := e.IntN(len(lines))
		if path := paths[i]; path != "" {
			_, value, _ := strings.Cut(lines[i], ": ")
			lines[i] = withValue(lines[i], e.other(path, value))
		}
	}
	if e.careful {
		return lines
	}
	at := e.IntN(len(lines))
	switch e.IntN(24) {
	case 0:
		return slices.Insert(lines, at, "nonsense: 1") // which may also cut a section in two
	case 1:
		return slices.Insert(lines, at, "\t[ {")
	case 2:
		return append(lines, "log: {}")
	case 3:
		return lines[:at] // as an editor that is killed leaves it
	case 4:
		return nil
	case 5:
		return append(lines, "---", "log: {level: warn}")
	case 6:
		return []string{"{}"} // all defaults
	}
	return lines
}

// TestReloadUnderLoad: after each of many random edits of the file and a SIGHUP
// the daemon runs with what the file says of the keys that can change, or, if
// the file is wrong, with its old values, and says where the file is wrong. No
// request fails meanwhile. -reload-edits makes it longer.
func TestReloadUnderLoad(t *testing.T) {
	var front, password string
	r := newReloadRig(t, func(c *config.Config) {
		c.CPU.Capacity = 64 << 20
		dir := filepath.Dir(c.Listen.Socket)
		front, password = filepath.Join(dir, "resp.sock"), filepath.Join(dir, "password")
		c.Listen.RESP = []string{front}
	})
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	asked := loadDaemon(t, r.d.Socket, front)
	e := &editor{Rand: rand.New(rand.NewPCG(*reloadSeed, 0)), lines: r.lines, password: password}
	live := liveKeys(t)
	good := 0
	for n := range *reloadEdits {
		text := e.edit()
		r.write(text)
		before, after, log := r.reload()
		if after.ReloadsBad > before.ReloadsBad {
			r.wantRefused(before, after)
		} else {
			good++
			r.wantApplied(before, after, live)
		}
		if t.Failed() {
			t.Fatalf("after edit %d:\n%s\n%s", n, strings.Join(text, "\n"), log)
		}
	}
	t.Logf("%d of %d edits were applied, the others refused; %d requests meanwhile", good, *reloadEdits, asked())
	if bad := *reloadEdits - good; good < *reloadEdits/8 || bad < *reloadEdits/8 {
		t.Errorf("%d good and %d bad edits: too few of one kind", good, bad)
	}
}

// load reads the file as a daemon that starts would.
func (r *reloadRig) load() (config.Config, error) {
	rules, err := product.Rules(true)
	if err != nil {
		r.t.Fatal(err)
	}
	return config.Load(r.d.Config, nil, rules)
}

// wantRefused: nothing has changed, and the log has every problem of the file.
func (r *reloadRig) wantRefused(before, after admin.Config) {
	r.t.Helper()
	if after.Running != before.Running || after.LastReloadOK {
		r.t.Errorf("a file that was refused changed something: now it is\n%s", after.Running)
	}
	_, err := r.load()
	var problems config.Errors
	switch {
	case errors.As(err, &problems):
		for _, p := range problems {
			if line := encoded(r.t, "configuration not reloaded: "+p.Error()); !r.says(regexp.MustCompile(regexp.QuoteMeta(line))) {
				r.t.Errorf("the log does not say %s", line)
			}
		}
	case !r.says(regexp.MustCompile(`configuration not reloaded: (read config: \S+ is empty|\S+:\d+:\d+: (listen.resp_password_file|.*; this is beside what runs))`)):
		r.t.Errorf("the file was refused (%v), and the log does not say why", err)
	}
}

// encoded is a text as it stands in a log.
func encoded(t *testing.T, text string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(text); err != nil {
		t.Fatal(err)
	}
	return strings.Trim(b.String(), "\"\n")
}

// wantApplied: the keys that can change are the file's, the others as before,
// and named where the file has another value.
func (r *reloadRig) wantApplied(before, after admin.Config, live map[string]bool) {
	r.t.Helper()
	c, err := r.load()
	if err != nil {
		r.t.Fatalf("a file that is wrong was applied: %v", err)
	}
	var printed bytes.Buffer
	if err := c.Print(&printed); err != nil {
		r.t.Fatal(err)
	}
	file, was, now := flat(&c), valuesOf(before.Running), valuesOf(after.Running)
	var waits []string
	for path, value := range file {
		want := value
		if !live[path] {
			if want = was[path]; want != value {
				waits = append(waits, path)
			}
		}
		if now[path] != want {
			r.t.Errorf("%s is %s, want %s", path, now[path], want)
		}
	}
	var named []string
	for _, w := range after.NeedsRestart {
		named = append(named, w.Path)
	}
	slices.Sort(waits)
	slices.Sort(named)
	if !slices.Equal(waits, named) || !after.LastReloadOK {
		r.t.Errorf("it names %q for a restart, want %q", named, waits)
	}
}

// flat is a configuration by path.
func flat(c *config.Config) map[string]string {
	var text bytes.Buffer
	if err := c.Print(&text); err != nil {
		panic(err) // it cannot fail on what was loaded
	}
	return valuesOf(text.String())
}

// loadDaemon has clients store and read, and check every byte, until the test
// ends or stopped is called, which returns how many requests there were. A
// request that fails fails the test.
func loadDaemon(t *testing.T, socket, front string) (stopped func() int64) {
	ctx, cancel := context.WithCancel(t.Context())
	var (
		wg sync.WaitGroup
		mu sync.Mutex
		n  int64
	)
	work := func(what string, step func(i uint64) error) {
		wg.Go(func() {
			for i := uint64(0); ctx.Err() == nil; i++ {
				if err := step(i); err != nil {
					t.Errorf("%s fails: %v", what, err)
					return
				}
				mu.Lock()
				n++
				mu.Unlock()
			}
		})
	}
	for w := range uint64(2) {
		c, err := client.Dial(ctx, socket, client.Options{Name: fmt.Sprintf("load %d", w), Space: &load.Space})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		work("a client", func(i uint64) error { return storeAndRead(t, c, 1<<50+w<<40+i) })
	}
	work("a Redis client", newRedis(t, front).setAndGet)
	stopped = func() int64 {
		cancel()
		wg.Wait()
		return n
	}
	t.Cleanup(func() { stopped() })
	return stopped
}

// storeAndRead stores a prompt, and reads it and one that was stored before.
func storeAndRead(t *testing.T, c *client.Client, number uint64) error {
	ctx := context.WithoutCancel(t.Context())
	err := load.Put(ctx, c, load.Chain(t, load.Space, number, 4))
	for end := time.Now().Add(time.Minute); errors.Is(err, client.ErrNoSpace) && time.Now().Before(end); { // its disk is behind for longer than a reserve waits
		err = load.Put(ctx, c, load.Chain(t, load.Space, number, 4))
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	buf := make([]byte, load.MaxSize)
	for _, back := range []uint64{0, 30} {
		chain := load.Chain(t, load.Space, number-back, 4)
		job, err := c.Prefetch(ctx, client.Chain(chain), client.PrefetchOptions{})
		if err != nil {
			return fmt.Errorf("prefetch: %w", err)
		}
		st, err := job.Wait(ctx, client.All)
		if err != nil {
			return fmt.Errorf("wait: %w", err)
		}
		for i := range int(st.Ready.Chunks) {
			size, err := job.Copy(ctx, buf, i)
			if err != nil || !load.Right(chain.Key(i), buf[:size]) {
				return fmt.Errorf("chunk %d has wrong bytes, or %w", i, err)
			}
		}
		if err := job.Release(ctx); err != nil {
			return fmt.Errorf("release: %w", err)
		}
	}
	return nil
}
