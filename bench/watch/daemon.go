package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/measure"
)

const (
	chunks      = 24 // of a prompt
	chunkBytes  = 16 << 10
	capacityMiB = 64
	few         = 64  // prompts that DRAM has all the time
	many        = 512 // prompts that it cannot hold: 192 MiB
)

// daemon is one kvstored and its clients.
type daemon struct {
	*measure.Daemon
	dir   string
	pages string // address of the pages; "" has none
	c     *client.Client
	made  measure.Prompts
	few   []client.Prompt
	half  []client.Prompt // as few, and as much behind each
	many  []client.Prompt
	at    int
	turns sync.Mutex // held while it is not its turn, and its readers wait
	end   []func()
}

// startDaemon starts a daemon, fills it, and has it watched if it is to be. With an error
// there is none.
func startDaemon(ctx context.Context, o *options, dir string, watched bool) (*daemon, error) {
	name := "alone"
	if watched {
		name = "watched"
	}
	d := &daemon{dir: filepath.Join(dir, name)}
	d.turns.Lock()
	if err := os.MkdirAll(filepath.Join(d.dir, "disk"), 0o700); err != nil {
		return nil, err
	}
	if watched || o.estimates {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		d.pages = l.Addr().String()
		_ = l.Close()
	}
	process, err := measure.Start(o.binary, filepath.Join(d.dir, "s"), fmt.Sprintf(`listen: {socket: %s/s}
admin: {listen: "%s", dashboard: true, what_if: %v}
cpu: {capacity: %dMiB}
disk: {paths: [%s/disk], capacity: 2GiB, min_free: 0}
write: {mode: through}
log: {level: warn}
`, d.dir, d.pages, watched, capacityMiB, d.dir))
	if err != nil {
		return nil, err
	}
	d.Daemon = process
	err = d.dial(ctx)
	if err == nil && watched && !o.estimates {
		err = d.watch(ctx)
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// dial connects, and stores the prompts of the turns.
func (d *daemon) dial(ctx context.Context) (err error) {
	if d.c, err = d.Dial(ctx, measure.Options()); err != nil {
		return err
	}
	d.end = append(d.end, func() { _ = d.c.Close() })
	for range many {
		p := d.made.New(chunks)
		if _, err := d.c.Put(ctx, p, 0, payloads()); err != nil {
			return err
		}
		d.many = append(d.many, p)
	}
	for i := range uint64(few) {
		d.few = append(d.few, measure.Prompt(many+1+i, chunks))
		d.half = append(d.half, measure.Prompt(many+1+i, 2*chunks))
	}
	_, err = d.c.Flush(ctx, false)
	return err
}

func payloads() (out [][]byte) {
	for range chunks {
		out = append(out, make([]byte, chunkBytes))
	}
	return out
}

// works are what the daemons do in their turns. ready, where there is one, comes before.
var works = []struct {
	name string
	do   work
}{
	{"lookups, all there", work{(*daemon).keepFew, func(ctx context.Context, d *daemon, n int) error { return d.lookup(ctx, d.few[n%few]) }}},
	{"lookups, half missing", work{(*daemon).keepFew, func(ctx context.Context, d *daemon, n int) error { return d.lookup(ctx, d.half[n%few]) }}},
	{"loads from DRAM", work{(*daemon).keepFew, func(ctx context.Context, d *daemon, n int) error { return d.load(ctx, d.few[n%few]) }}},
	{"loads from DRAM, half", work{(*daemon).keepFew, func(ctx context.Context, d *daemon, n int) error { return d.load(ctx, d.half[n%few]) }}},
	{"loads from disk", work{nil, func(ctx context.Context, d *daemon, _ int) error {
		d.at++
		return d.load(ctx, d.many[d.at%many])
	}}},
}

type work struct {
	ready func(*daemon, context.Context) error
	one   func(ctx context.Context, d *daemon, n int) error
}

// keepFew has the few prompts in DRAM.
func (d *daemon) keepFew(ctx context.Context) error {
	for _, p := range d.few {
		if _, err := d.c.Put(ctx, p, 0, payloads()); err != nil {
			return err
		}
		if err := d.load(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (d *daemon) lookup(ctx context.Context, p client.Prompt) error {
	_, err := d.c.Lookup(ctx, p, 0)
	return err
}

// load asks for a prompt, waits for its prefix, and lets it go.
func (d *daemon) load(ctx context.Context, p client.Prompt) error {
	j, err := d.c.Prefetch(ctx, p, client.PrefetchOptions{})
	if err != nil {
		return err
	}
	st, err := j.Wait(ctx, client.All)
	if err == nil && st.Ready.Chunks < chunks {
		err = fmt.Errorf("%d chunks came of %d", st.Ready.Chunks, chunks)
	}
	return errors.Join(err, j.Release(ctx))
}

// turn is one turn of one kind of work.
func (d *daemon) turn(ctx context.Context, w work, span time.Duration) (r result, err error) {
	if w.ready != nil {
		if err := w.ready(d, ctx); err != nil {
			return r, err
		}
	}
	busy, begun := d.Busy(), time.Now()
	for time.Since(begun) < span {
		if err := w.one(ctx, d, r.n); err != nil {
			return r, err
		}
		r.n++
	}
	r.took, r.busy = time.Since(begun), d.Busy()-busy
	return r, nil
}

// watch has the daemon watched until it is closed.
func (d *daemon) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	d.end = append(d.end, func() {
		cancel()
		d.turns.Unlock() // for readers that wait
		running.Wait()
	})
	stats, err := client.Dial(ctx, filepath.Join(d.dir, "s"), client.Options{Name: "top", Inline: true})
	if err != nil {
		return err
	}
	d.every(ctx, &running, 2*time.Second, func() { _ = d.fetch(ctx, http.DefaultClient, "http://"+d.pages+"/dashboard/events") })
	d.every(ctx, &running, 5*time.Second, func() { _ = d.fetch(ctx, http.DefaultClient, "http://"+d.pages+"/metrics") })
	admin := d.admin()
	d.every(ctx, &running, 2*time.Second, func() {
		_, _ = stats.Stats(ctx)
		for _, call := range []string{"clients", "leases", "jobs", "pins", "retains", "ls?by=heat&all=true&limit=50"} {
			_ = d.fetch(ctx, admin, "http://kvstored/v1/"+call)
		}
	})
	return nil
}

// every calls do in turns of the daemon only, but as often as the clock says.
func (d *daemon) every(ctx context.Context, running *sync.WaitGroup, pause time.Duration, do func()) {
	running.Go(func() {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			d.turns.Lock()
			d.turns.Unlock() //nolint:staticcheck // it waits for the turn, and must not hold it up
			do()
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
}

func (d *daemon) admin() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(d.dir, "s.admin"))
	}}}
}

// fetch reads a page to its end.
func (d *daemon) fetch(ctx context.Context, c *http.Client, url string) error {
	_, err := d.text(ctx, c, url)
	return err
}

func (d *daemon) text(ctx context.Context, c *http.Client, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		_, err = bufio.NewReader(resp.Body).ReadString('\n') // an event
		return nil, err
	}
	return io.ReadAll(resp.Body)
}

// profiled begins a processor profile where one is wanted, and returns what waits for it.
func (d *daemon) profiled(o *options) func() error {
	if o.profile == "" {
		return func() error { return nil }
	}
	turns := time.Duration((o.rounds+1)*len(works)*2) * o.span
	done := make(chan error, 1)
	go func() {
		text, err := d.text(context.Background(), d.admin(), fmt.Sprintf("http://kvstored/debug/pprof/profile?seconds=%d", int(turns.Seconds())))
		if err == nil {
			err = os.WriteFile(o.profile, text, 0o600)
		}
		done <- err
	}()
	return func() error { return <-done }
}

// printShare prints how much time the estimates took, of the processor time of the daemon's
// turns and of what its requests about prompts took.
func (d *daemon) printShare(busy time.Duration) error {
	text, err := d.text(context.Background(), http.DefaultClient, "http://"+d.pages+"/metrics")
	if err != nil {
		return err
	}
	sum := func(name string) (total float64) {
		for _, m := range regexp.MustCompile(`(?m)^kvstored_`+name+` (\S+)$`).FindAllSubmatch(text, -1) {
			v, _ := strconv.ParseFloat(string(m[1]), 64) // Prometheus' own numbers
			total += v
		}
		return total
	}
	asking := sum(`request_seconds_sum\{op="(?:lookup|prefetch|reserve)"\}`)
	spent := sum("whatif_seconds_total")
	fmt.Printf("\nestimates took %.3f s in %.0f s: %.2f %% of the %.1f s of processor time that lookups and loads took, %.2f %% of the %.2f s within their requests\n",
		spent, sum("uptime_seconds"), 100*spent/busy.Seconds(), busy.Seconds(), 100*spent/asking, asking)
	return nil
}

// close ends the daemon and its clients.
func (d *daemon) close() {
	for i := len(d.end) - 1; i >= 0; i-- {
		d.end[i]()
	}
	_ = d.Close() // its own words are on the standard error
}
