package reload

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/internal/admin"
)

// effect is what a reload does that shows from outside.
type effect struct {
	name   string
	values map[string]string
	shows  func() bool
}

// TestReloadTakesEffect: what a reload changes shows in what the daemon does, and
// shows no more when the file is as before.
func TestReloadTakesEffect(t *testing.T) {
	var front, password string
	r := newReloadRig(t, func(c *config.Config) {
		c.CPU.Capacity, c.Disk.Capacity = 64<<20, 256<<20
		dir := filepath.Dir(c.Listen.Socket)
		front, password = filepath.Join(dir, "resp.sock"), filepath.Join(dir, "password")
		c.Listen.RESP = []string{front}
		c.Listen.RESPPasswordFile = password
		if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	operator := admin.NewClient(config.AdminSocketOf(r.d.Socket), 0)
	defer operator.Close()
	policyIs := func(tier, name string) func() bool {
		return func() bool {
			var c admin.Config
			err := operator.Get(t.Context(), "/v1/config", &c)
			return err == nil && c.Policies.Tiers[tier] == name
		}
	}
	huge := strings.Repeat("x", 65<<20)
	for _, e := range []effect{
		{"the policy of DRAM", map[string]string{"cpu.policy": "s3fifo"}, policyIs("cpu", "s3fifo")},
		{"the policy of the disk", map[string]string{"disk.policy": "lfu"}, policyIs("disk", "lfu")},
		{"errors for values that cannot be kept", map[string]string{"listen.resp_full": "error"}, func() bool {
			_, err := newRedis(t, front).do("SET", "huge", huge)
			return err != nil
		}},
		{"a quota", map[string]string{"spaces": `[{match: "cra*", quota: 64MiB}, {match: "other", quota: 70MiB}]`}, func() bool {
			return r.quotas()["cra*"] == 64<<20 && r.quotas()["other"] == 70<<20
		}},
		{"the write budget", map[string]string{"disk.write_budget": "24"}, r.diskRefuses},
		{"the age of leases", map[string]string{"lease.max_age": "1ms"}, r.leaseEnds},
		{"the log's level", map[string]string{"log.level": "error"}, func() bool {
			_, _, log := r.reload()
			return !strings.Contains(log, "configuration reloaded")
		}},
	} {
		if e.shows() {
			t.Errorf("%s: it shows before", e.name)
		}
		if after, log := r.set(e.values); !after.LastReloadOK {
			t.Fatalf("%s: %s", e.name, log)
		}
		for end := time.Now().Add(time.Minute); !e.shows(); { // DRAM shrinks in its own time
			if time.Now().After(end) {
				t.Errorf("%s: nothing shows", e.name)
				break
			}
		}
		if after, _ := r.set(nil); !after.LastReloadOK || e.shows() {
			t.Errorf("%s: it shows still", e.name)
		}
	}
}

// statsOf is the daemon's statistics.
func (r *reloadRig) statsOf() *daemon.Stats {
	r.t.Helper()
	return r.d.Stats()
}

// fresh stores a prompt that was not stored before.
func (r *reloadRig) fresh(chunks int) client.Prompt {
	r.t.Helper()
	c, err := client.Dial(r.t.Context(), r.d.Socket, client.Options{Space: &load.Space})
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	r.stored++
	chain := load.Chain(r.t, load.Space, 1<<55+r.stored, chunks)
	if err := load.Put(r.t.Context(), c, chain); err != nil {
		r.t.Fatal(err)
	}
	return client.Chain(chain)
}

// diskRefuses: new chunks are not written for want of a budget.
func (r *reloadRig) diskRefuses() bool {
	dropped := func() uint64 { return r.statsOf().Store.Written["disk"].Dropped["write_budget"].Chunks }
	before := dropped()
	r.fresh(4)
	if _, err := r.c.Flush(r.t.Context(), false); err != nil {
		r.t.Fatal(err)
	}
	return dropped() > before
}

func (r *reloadRig) quotas() map[string]int64 {
	var v struct {
		Store struct {
			Tiers map[string]struct {
				Quotas []struct {
					Match string `json:"match"`
					Bytes int64  `json:"quota_bytes"`
				} `json:"quotas"`
			} `json:"tiers"`
		} `json:"store"`
	}
	raw, err := r.c.Stats(r.t.Context())
	if err == nil {
		err = json.Unmarshal(raw, &v)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	out := make(map[string]int64)
	for _, q := range v.Store.Tiers["cpu"].Quotas {
		out[q.Match] = q.Bytes
	}
	if on := v.Store.Tiers["disk"].Quotas; len(on) != len(out) {
		r.t.Errorf("the disk has %d quotas, DRAM %d", len(on), len(out))
	}
	return out
}

// leaseEnds: a lease of a new connection does not hold for 50 ms.
func (r *reloadRig) leaseEnds() bool {
	if r.prompt == nil { // its fill must hold for longer
		p := r.fresh(4)
		r.prompt = &p
	}
	c, err := client.Dial(r.t.Context(), r.d.Socket, client.Options{Space: &load.Space})
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	job, err := c.Prefetch(r.t.Context(), *r.prompt, client.PrefetchOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	return job.Release(r.t.Context()) != nil
}

// TestReloadPassword: a new password in the same file counts for logins after a
// reload; a file without one is refused with the line that names it.
func TestReloadPassword(t *testing.T) {
	var password string
	d := daemon.Start(t, func(c *config.Config) {
		password = filepath.Join(filepath.Dir(c.Listen.Socket), "password")
		c.Listen.RESP, c.Listen.RESPPasswordFile, c.Log.Format = []string{"127.0.0.1:0"}, password, "json"
		if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	front := d.Find(`"address":"(127\.0\.0\.1:\d+)"`)
	text, err := os.ReadFile(d.Config)
	if err != nil {
		t.Fatal(err)
	}
	r := &reloadRig{t: t, d: d, lines: strings.Split(strings.TrimSpace(string(text)), "\n")}
	if r.c, err = client.Dial(t.Context(), d.Socket, client.Options{Inline: true}); err != nil {
		t.Fatal(err)
	}
	defer r.c.Close()
	login := func(word string) bool {
		_, err := newRedis(t, front).do("AUTH", word)
		return err == nil
	}
	old := newRedis(t, front)
	if _, err := old.do("AUTH", "secret"); err != nil || login("other") {
		t.Fatalf("before: %v", err)
	}
	for _, content := range []string{"", "\nother\n"} {
		if err := os.WriteFile(password, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		line := 1 + slices.Index(pathsOf(r.lines), "listen.resp_password_file")
		if after, log := r.set(nil); after.LastReloadOK || !strings.Contains(log, fmt.Sprintf("kvstored.yaml:%d:", line)) || !strings.Contains(log, "listen.resp_password_file: the first line of") {
			t.Errorf("a file with %q: %s", content, log)
		}
	}
	if !login("secret") {
		t.Error("the old password does not count any more")
	}
	if err := os.WriteFile(password, []byte("other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if after, log := r.set(nil); !after.LastReloadOK {
		t.Fatal(log)
	}
	if login("secret") || !login("other") {
		t.Error("the new password does not count")
	}
	if _, err := old.do("PING"); err != nil {
		t.Errorf("a connection that had logged in: %v", err)
	}
}

// TestHangupsNeverEndIt: a daemon survives a storm of SIGHUP while it starts, runs
// and stops.
func TestHangupsNeverEndIt(t *testing.T) {
	d := daemon.Folder(t)
	for range 2 {
		d.Launch()
		// Before main has begun it ends every program; the log begins a moment later.
		for st, err := os.Stat(d.Log); err != nil || st.Size() == 0; st, err = os.Stat(d.Log) {
			time.Sleep(time.Millisecond)
		}
		var storm sync.WaitGroup
		var signals atomic.Int64
		process := d.Process()
		storm.Go(func() {
			for process.Signal(syscall.SIGHUP) == nil { // until it has ended
				signals.Add(1)
				time.Sleep(100 * time.Microsecond)
			}
		})
		if _, err := d.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		d.AwaitSaid("configuration reloaded")
		for signals.Load() < 20 { // fewer are no storm
			time.Sleep(time.Millisecond)
		}
		d.Stop()
		storm.Wait()
		d.AwaitSaid("flushed")
		if err := os.Remove(d.Log); err != nil {
			t.Fatal(err)
		}
	}
}
