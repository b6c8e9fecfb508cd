package main

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/s3test"
	"github.com/kvstored/kvstored/key"
)

var sharedTrace = flag.String("shared-trace", "", "conversation trace for TestSharedTrace: two daemons, one bucket, 2,000 requests")

// remoteDaemon starts a daemon with its own DRAM and disk over a bucket that
// others use too.
func remoteDaemon(t *testing.T, endpoint string, change func(*config.Config)) *demoDaemon {
	t.Helper()
	d := daemonFolder(t)
	cfg := config.Default()
	cfg.Listen.Socket, cfg.Admin.Listen = d.socket, ""
	cfg.CPU.Capacity = 64 << 20
	cfg.Disk.Paths = []string{filepath.Join(filepath.Dir(d.config), "disk")}
	cfg.Disk.Capacity, cfg.Disk.SegmentSize, cfg.Disk.MinFree = 4<<30, 64<<20, 0
	cfg.Remote.S3.Bucket, cfg.Remote.S3.Endpoint, cfg.Remote.S3.PathStyle = s3test.Bucket, endpoint, true
	if change != nil {
		change(&cfg)
	}
	configure(t, d, &cfg)
	if _, err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.kill)
	return d
}

// sharing returns d once it has reached the store.
func sharing(t *testing.T, d *demoDaemon) *demoDaemon {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*demoStartTimeout) // it tries every 30 s at least
	defer cancel()
	for {
		st, err := d.stats(ctx)
		if err != nil {
			t.Fatal(d.failed(err))
		}
		if !st.Store.Tiers["remote"].Off {
			return d
		}
		time.Sleep(demoStartPoll)
	}
}

// storeChains puts chains of many chunks, more than DRAM holds, and flushes.
func storeChains(t *testing.T, socket string, n, chunks int) *stored {
	t.Helper()
	c, err := client.Dial(t.Context(), socket, client.Options{Name: "remote", Space: &crashSpace})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := &stored{committed: make(map[uint64]*key.Chain), flushed: make(map[uint64]*key.Chain)}
	for number := range uint64(n) {
		chain := chainOf(t, crashSpace, number, chunks)
		if err := storeChain(t.Context(), c, chain); err != nil {
			t.Fatal(err)
		}
		s.committed[number], s.flushed[number] = chain, chain
	}
	flush(t, socket)
	return s
}

// flush writes everything that the filter, if there is one, lets pass.
func flush(t *testing.T, socket string) {
	t.Helper()
	c, err := client.Dial(t.Context(), socket, client.Options{Name: "remote", Inline: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	done, err := c.Flush(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range done.Left {
		if l.Reason != "min_hits" {
			t.Fatalf("the flush left %v", done.Left)
		}
	}
}

// TestShared: what one daemon has computed another one finds, whole and right,
// also when the first is gone.
func TestShared(t *testing.T) {
	s3 := s3test.Run(t)
	a := sharing(t, remoteDaemon(t, s3.Endpoint, nil))
	s := storeChains(t, a.socket, 16, 24)
	s.check(t, sharing(t, remoteDaemon(t, s3.Endpoint, nil)).socket, every)
	a.kill()
	lone := sharing(t, remoteDaemon(t, s3.Endpoint, func(c *config.Config) { c.Disk.Capacity = 0 }))
	s.check(t, lone.socket, every)
	st, err := lone.stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := st.Store.Tiers["remote"].Counters["get_requests"]; n < 16*24 {
		t.Errorf("%d chunks were read with %d requests", 16*24, n)
	}
	// A chunk that one daemon deletes is gone for all that do not hold it themselves.
	c, err := client.Dial(t.Context(), lone.socket, client.Options{Name: "remote", Space: &crashSpace})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n, err := c.DeleteSpace(t.Context(), c.Space()); err != nil || n < 16*24 {
		t.Errorf("deleted %d chunks of the space, error %v", n, err)
	}
	fresh := sharing(t, remoteDaemon(t, s3.Endpoint, nil))
	clear(s.flushed)
	s.check(t, fresh.socket, every)
	if st, err = fresh.stats(t.Context()); err != nil || st.Store.Chunks != 0 {
		t.Errorf("after the deletion there are %d chunks, error %v", st.Store.Chunks, err)
	}
}

// TestPurge: a daemon that knows little of a space deletes all of it, on disk and
// in the bucket, also what another one stored there.
func TestPurge(t *testing.T) {
	const chains, chunks = 4, 6
	s3 := s3test.Run(t)
	a := sharing(t, remoteDaemon(t, s3.Endpoint, nil))
	s := storeChains(t, a.socket, chains, chunks)
	a.kill()
	b := sharing(t, remoteDaemon(t, s3.Endpoint, nil))
	s.check(t, b.socket, func(number uint64) bool { return number == 0 })
	t.Setenv("KVSTORED_SOCKET", b.socket)
	space := hex.EncodeToString(s.committed[0].Space[:])
	fails(t, exitUsage, "--yes", "purge", space)
	fails(t, exitUsage, "32 hex digits", "purge", "model", "--yes")
	want := purgeResult{Space: space, DryRun: true, Known: chunks, Found: chains * chunks}
	_, want.Bytes = objects(t, s3)
	if got := read[purgeResult](t, "purge", space, "--dry-run"); got != want {
		t.Errorf("dry run: %+v; want %+v", got, want)
	}
	if n, _ := objects(t, s3); n != chains*chunks {
		t.Fatalf("%d objects after a dry run", n)
	}
	if out := must(t, "", "purge", space, "--yes"); !strings.HasPrefix(out, "6 chunks known here deleted, and 18 chunks (") {
		t.Errorf("purge: %s", out)
	}
	if n, _ := objects(t, s3); n != 0 {
		t.Errorf("%d objects are left", n)
	}
	clear(s.flushed)
	for number, n := range s.check(t, b.socket, every) {
		if n != 0 {
			t.Errorf("there are %d chunks of chain %d", n, number)
		}
	}
}

// TestRemoteTrouble: a daemon serves in each kind of trouble of its store, and
// names the trouble without credentials.
func TestRemoteTrouble(t *testing.T) {
	s3 := s3test.Run(t)
	proxy := s3test.RunProxy(t, s3)
	proxy.Set(func(*http.Request) s3test.Fault { return s3test.Fault{Status: 403, Code: "AccessDenied"} })
	d := remoteDaemon(t, proxy.Endpoint, nil)
	c, err := client.Dial(t.Context(), d.socket, client.Options{Name: "remote", Space: &crashSpace})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := storeChain(t.Context(), c, chainOf(t, crashSpace, 1, 4)); err != nil {
		t.Fatal(err)
	}
	flushed, err := c.Flush(t.Context(), false)
	if err != nil || len(flushed.Left) == 0 {
		t.Errorf("a flush without the store left %v, error %v", flushed.Left, err)
	}
	_, stats, _ := kvstored(t, "", "stats", "--json", "--socket", d.socket)
	code, checked, errs := kvstored(t, "", "check", "--file-only", "--connect", d.config)
	if code != exitFailure || !strings.Contains(errs, "AccessDenied") {
		t.Errorf("check: exit code %d, %s", code, errs)
	}
	log := awaitLog(t, d, "the daemon serves without it") // once it has tried
	for _, text := range []string{stats, checked, errs, log} {
		if strings.Contains(text, s3test.AccessKey) || strings.Contains(text, s3test.SecretKey) {
			t.Errorf("credentials are told:\n%s", text)
		}
	}
	proxy.Set(nil)
	sharing(t, d) // it has not stopped trying
	if code, out, errs := kvstored(t, "", "check", "--file-only", "--connect", d.config); code != exitOK || !strings.Contains(out, "can be read, written") {
		t.Errorf("check once it works: exit code %d, %s", code, errs)
	}
}

// objects counts the chunks in a bucket and their bytes.
func objects(t *testing.T, s3 *s3test.Server) (n int, bytes uint64) {
	t.Helper()
	sizes, err := s3.Objects()
	if err != nil {
		t.Fatal(err)
	}
	for name, size := range sizes {
		if strings.HasPrefix(name, config.Default().Remote.S3.Prefix+"/") {
			n, bytes = n+1, bytes+uint64(size)
		}
	}
	return n, bytes
}

// TestBothStoreAtOnce: two daemons store the same chunks at the same time. There
// is one object per key, and bytes sent in vain are counted.
func TestBothStoreAtOnce(t *testing.T) {
	const chains, chunks = 8, 24
	s3 := s3test.Run(t)
	daemons := []*demoDaemon{sharing(t, remoteDaemon(t, s3.Endpoint, nil)), sharing(t, remoteDaemon(t, s3.Endpoint, nil))}
	g, ctx := errgroup.WithContext(t.Context())
	for _, d := range daemons {
		c, err := client.Dial(t.Context(), d.socket, client.Options{Name: "remote", Space: &crashSpace})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		g.Go(func() error {
			for number := range uint64(chains) {
				if err := storeChain(ctx, c, chainOf(t, crashSpace, number, chunks)); err != nil {
					return err
				}
			}
			left, err := c.Flush(ctx, false)
			if err == nil && len(left.Left) > 0 {
				err = fmt.Errorf("the flush left %v", left.Left)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	n, size := objects(t, s3)
	var sent, wasted, stored, present uint64
	for _, d := range daemons {
		st, err := d.stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		far := st.Store.Tiers["remote"]
		sent, wasted = sent+far.Counters["sent_bytes"], wasted+far.Counters["wasted_bytes"]
		stored, present = stored+far.PutBytes, present+far.Counters["puts_present"]
	}
	if n != chains*chunks || stored != size || present != chains*chunks {
		t.Errorf("%d objects of %d bytes, %d bytes stored, %d puts of what was there; want %d objects, each stored once and met once", n, size, stored, present, chains*chunks)
	}
	if wasted != sent-stored || wasted == 0 {
		t.Errorf("%d bytes are counted as wasted of %d sent; %d were stored", wasted, sent, stored)
	}
}

// TestSharedFiltered: with write.mode selective another daemon hits exactly what
// was used often enough.
func TestSharedFiltered(t *testing.T) {
	const chains, chunks = 10, 12
	s3 := s3test.Run(t)
	a := sharing(t, remoteDaemon(t, s3.Endpoint, func(c *config.Config) { c.Write.Mode = config.WriteSelective }))
	s := storeChains(t, a.socket, chains, chunks)
	if n, _ := objects(t, s3); n != 0 {
		t.Errorf("%d objects of chunks that nobody has used", n)
	}
	often := func(number uint64) bool { return number%3 == 0 }
	for range config.Default().Write.MinHits {
		s.check(t, a.socket, often)
	}
	flush(t, a.socket)
	a.kill()
	clear(s.flushed)
	there := s.check(t, sharing(t, remoteDaemon(t, s3.Endpoint, nil)).socket, every)
	passed := 0
	for number := range uint64(chains) {
		want := 0
		if often(number) {
			want, passed = chunks, passed+chunks
		}
		if there[number] != want {
			t.Errorf("the other daemon has %d chunks of chain %d; want %d", there[number], number, want)
		}
	}
	if n, _ := objects(t, s3); n != passed {
		t.Errorf("%d objects; want %d", n, passed)
	}
}

// TestSharedTrace plays 2,000 requests of a real trace through one daemon, and
// again through another that shares nothing but the bucket: with the first one
// still there, and when it is gone. With the filter on the other one gets from
// the bucket what the filter let pass, each chunk once.
func TestSharedTrace(t *testing.T) {
	if *sharedTrace == "" {
		t.Skip("-shared-trace is not given")
	}
	const everyToken = "27,441,774"
	big := func(c *config.Config) {
		c.CPU.Capacity, c.Disk.Capacity, c.Disk.SegmentSize = 512<<20, 8<<30, 256<<20
		c.Write.Queue = 256 << 20
		c.Prefetch.Policy = config.PrefetchWaitComplete // however slow the machine is
	}
	filtered := func(c *config.Config) {
		big(c)
		c.Write.Mode = config.WriteSelective
	}
	play := func(t *testing.T, d *demoDaemon) string {
		t.Helper()
		code, out, errs := kvstored(t, "", "replay", "--trace", *sharedTrace, "--limit", "2000", "--payload-bytes", "64KiB", "--save-unfull", "--socket", d.socket)
		if code != exitOK {
			t.Fatalf("replay: exit code %d\n%s%s", code, out, errs)
		}
		return out
	}
	store := func(t *testing.T, d *demoDaemon) {
		t.Helper()
		play(t, d)
		flush(t, d.socket)
		_, out, _ := kvstored(t, "", "stats", "--socket", d.socket)
		t.Logf("the first daemon:\n%s", out)
	}
	t.Run("through", func(t *testing.T) {
		s3 := s3test.Run(t)
		a := sharing(t, remoteDaemon(t, s3.Endpoint, big))
		store(t, a)
		for _, also := range []string{"with the first daemon there", "with the first daemon gone"} {
			b := sharing(t, remoteDaemon(t, s3.Endpoint, big))
			out := play(t, b)
			t.Logf("%s:\n%s", also, out)
			if !strings.Contains(out, everyToken) || !strings.Contains(out, "every byte right") {
				t.Errorf("%s the other one did not hit %s tokens", also, everyToken)
			}
			b.kill()
			a.kill()
		}
	})
	t.Run("selective", func(t *testing.T) {
		s3 := s3test.Run(t)
		a := sharing(t, remoteDaemon(t, s3.Endpoint, filtered))
		store(t, a)
		a.kill()
		passed, size := objects(t, s3)
		b := sharing(t, remoteDaemon(t, s3.Endpoint, big))
		t.Log(play(t, b))
		st, err := b.stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		far := st.Store.Tiers["remote"]
		t.Logf("the filter let %d chunks pass; %d bytes of %d were got", passed, far.GetBytes, size)
		if far.GetBytes != size || passed == 0 {
			t.Errorf("%d bytes were got of the %d that the filter let pass", far.GetBytes, size)
		}
	})
}

// TestNoCredentialsTold: in each kind of trouble of a store, one that repeats
// its requests included, nothing the daemon or the commands say has a part
// of the credentials. With a session token, which the server refuses, the daemon
// only tries to connect.
func TestNoCredentialsTold(t *testing.T) {
	s3 := s3test.Run(t)
	for _, token := range []string{"", "kvstored-test-session-token-that-must-not-show"} {
		t.Run(fmt.Sprint("token ", token != ""), func(t *testing.T) {
			t.Setenv("AWS_SESSION_TOKEN", token)
			text := everythingSaid(t, s3, token == "")
			for _, secret := range []string{s3test.AccessKey, s3test.SecretKey, token, "Signature=", "AWS4-HMAC", "SDK 2"} {
				if at := strings.Index(text, secret); secret != "" && at >= 0 {
					t.Errorf("credentials are told: %s", text[max(0, at-200):min(len(text), at+len(secret)+100)])
				}
			}
			for _, told := range []string{"SignatureDoesNotMatch", "ExpiredToken", "SlowDown", "kvstored_remote_requests_total", "S3 requests"} {
				if !strings.Contains(text, told) {
					t.Errorf("the test does not get to what says %s", told)
				}
			}
		})
	}
}

// everythingSaid is what a daemon and the commands say while the store fails in
// every way: log, statistics, metrics, checks and errors.
func everythingSaid(t *testing.T, s3 *s3test.Server, works bool) string {
	t.Helper()
	proxy := s3test.RunProxy(t, s3)
	d := remoteDaemon(t, proxy.Endpoint, func(c *config.Config) {
		c.Log.Level, c.Admin.Listen = "trace", "127.0.0.1:0"
	})
	const serving = `"admin":"([^"]+)"`
	admin := regexp.MustCompile(serving).FindStringSubmatch(awaitLog(t, d, serving))[1]
	if works {
		sharing(t, d)
	}
	c, err := client.Dial(t.Context(), d.socket, client.Options{Name: "remote", Space: &crashSpace})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	var said strings.Builder
	say := func(what string, err error) { fmt.Fprintln(&said, what, err) }
	for i, f := range []s3test.Fault{
		{}, // it works
		{Status: 400, Code: "ExpiredToken"}, {Status: 403, Code: "InvalidAccessKeyId"}, {Status: 403, Code: "SignatureDoesNotMatch"},
		{Status: 301, Code: "PermanentRedirect"}, {Status: 500, Code: "InternalError"}, {Status: 503, Code: "SlowDown"},
		{Status: 404, Code: "NoSuchBucket"}, {Reset: true}, {Truncate: true}, {Overlong: true}, {Flip: true},
	} {
		proxy.Set(func(*http.Request) s3test.Fault { return f })
		chain := chainOf(t, crashSpace, uint64(i), 2)
		say("store", storeChain(t.Context(), c, chain))
		flushed, err := c.Flush(t.Context(), true)
		say(fmt.Sprint("flush ", flushed.Left), err)
		unknown := chainOf(t, crashSpace, uint64(1000+i), 2)
		job, err := c.Prefetch(t.Context(), client.Chain(unknown), client.PrefetchOptions{Policy: client.WaitComplete})
		say("prefetch", err)
		if err == nil {
			st, err := job.Wait(t.Context(), client.All)
			say(fmt.Sprint("wait ", st.Reason), err)
			say("release", job.Release(t.Context()))
		}
		_, err = c.DeletePrompt(t.Context(), client.Chain(chain))
		say("delete", err)
		_, err = c.DeleteSpace(t.Context(), c.Space())
		say("delete space", err)
		for _, args := range [][]string{
			{"check", "--file-only", "--connect", d.config}, {"stats", "--socket", d.socket}, {"stats", "--json", "--socket", d.socket},
			{"flush", "--socket", d.socket}, {"clear", "remote", "--yes", "--socket", d.socket},
			{"purge", strings.Repeat("ab", 16), "--yes", "--socket", d.socket},
		} {
			_, out, errs := kvstored(t, "", args...)
			say(out, errors.New(errs))
		}
		for _, page := range []string{"/", "/metrics", "/healthz", "/readyz"} {
			resp, err := http.Get("http://" + admin + page)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			say(string(text), err)
		}
	}
	log, err := os.ReadFile(d.log)
	if err != nil {
		t.Fatal(err)
	}
	return said.String() + string(log)
}

// TestLongPromptAboveRemote: a prompt of 6 times DRAM is put above a disk and a
// bucket, and got byte by byte, from the disk, and from the bucket once the disk
// has nothing. While the bucket is off get returns the prefix that is there.
func TestLongPromptAboveRemote(t *testing.T) {
	const dram, chunks = 16 << 20, 384 // of 256 KiB
	s3 := s3test.Run(t)
	proxy := s3test.RunProxy(t, s3)
	d := sharing(t, remoteDaemon(t, proxy.Endpoint, func(c *config.Config) { c.CPU.Capacity = dram }))
	t.Setenv("KVSTORED_SOCKET", d.socket)
	kv := string(noise(9, 6*dram))
	if said := must(t, kv, prompt("put", 1, chunks)...); !strings.Contains(said, "stored 384 of 384 chunks (96 MiB)") {
		t.Errorf("put: %s", said)
	}
	must(t, "", "flush")
	if n, bytes := objects(t, s3); n != chunks {
		t.Errorf("the bucket has %d chunks, of %d bytes; want %d", n, bytes, chunks)
	}
	for _, from := range []string{"disk", "remote"} {
		if got := must(t, "", prompt("get", 1, chunks)...); got != kv {
			t.Fatalf("from %s %d bytes came back of %d, or others", from, len(got), len(kv))
		}
		must(t, "", "clear", "disk", "--yes")
	}
	proxy.Set(func(*http.Request) s3test.Fault { return s3test.Fault{Status: 503, Code: "SlowDown"} })
	code, got, said := kvstored(t, "", prompt("get", 1, chunks)...)
	if code != exitFailure || len(got) == len(kv) || !strings.HasPrefix(kv, got) || !strings.Contains(said, "failed") {
		t.Errorf("while the bucket is off: exit code %d, %d bytes, %s", code, len(got), said)
	}
}
