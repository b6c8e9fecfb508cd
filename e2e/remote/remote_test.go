package remote_test

import (
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/internal/test/s3test"
)

var sharedTrace = flag.String("shared-trace", "", "conversation trace for TestSharedTrace: two daemons, one bucket, 2,000 requests")

// over starts a daemon with its own DRAM and disk over a bucket that others use too.
func over(t *testing.T, endpoint string, changes ...func(*config.Config)) *daemon.Daemon {
	t.Helper()
	bucket := func(c *config.Config) {
		c.Disk.Capacity = 4 << 30
		c.Remote.S3.Bucket, c.Remote.S3.Endpoint, c.Remote.S3.PathStyle = s3test.Bucket, endpoint, true
	}
	return daemon.Start(t, append([]func(*config.Config){bucket}, changes...)...)
}

// sharing returns d once it has reached the store, which it tries every 30 s at least.
func sharing(t *testing.T, d *daemon.Daemon) *daemon.Daemon {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); d.Stats().Store.Tiers["remote"].Off; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not reach the store")
		}
	}
	return d
}

// storeChains puts chains of many chunks, more than DRAM holds, and flushes.
func storeChains(t *testing.T, d *daemon.Daemon, n, chunks int) *load.Book {
	t.Helper()
	c := d.Dial(client.Options{Name: "remote", Space: &load.Space})
	s := load.NewBook()
	for number := range uint64(n) {
		chain := load.Chain(t, load.Space, number, chunks)
		if err := load.Put(t.Context(), c, chain); err != nil {
			t.Fatal(err)
		}
		s.Committed[number], s.Flushed[number] = chain, chain
	}
	d.Flush()
	return s
}

// TestShared: what one daemon has computed another one finds, whole and right,
// also when the first is gone.
func TestShared(t *testing.T) {
	s3 := s3test.Run(t)
	a := sharing(t, over(t, s3.Endpoint))
	s := storeChains(t, a, 16, 24)
	s.Check(t, sharing(t, over(t, s3.Endpoint)).Socket, load.Every)
	a.Kill()
	lone := sharing(t, over(t, s3.Endpoint, func(c *config.Config) { c.Disk.Capacity = 0 }))
	s.Check(t, lone.Socket, load.Every)
	st := lone.Stats()
	if n := st.Store.Tiers["remote"].Counters["get_requests"]; n < 16*24 {
		t.Errorf("%d chunks were read with %d requests", 16*24, n)
	}
	// A chunk that one daemon deletes is gone for all that do not hold it themselves.
	c := lone.Dial(client.Options{Name: "remote", Space: &load.Space})
	if n, err := c.DeleteSpace(t.Context(), c.Space()); err != nil || n < 16*24 {
		t.Errorf("deleted %d chunks of the space, error %v", n, err)
	}
	fresh := sharing(t, over(t, s3.Endpoint))
	clear(s.Flushed)
	s.Check(t, fresh.Socket, load.Every)
	if n := fresh.Stats().Store.Chunks; n != 0 {
		t.Errorf("after the deletion there are %d chunks", n)
	}
}

// forgotten is what `kvstored forget --space ID --json` prints.
type forgotten struct {
	DryRun bool   `json:"dry_run"`
	Known  uint64 `json:"chunks"`
	Found  uint64 `json:"bucket_chunks"`
	Bytes  uint64 `json:"bucket_bytes"`
}

// TestPurge: a daemon that knows little of a space deletes all of it, on disk and
// in the bucket, also what another one stored there.
func TestPurge(t *testing.T) {
	const chains, chunks = 4, 6
	s3 := s3test.Run(t)
	a := sharing(t, over(t, s3.Endpoint))
	s := storeChains(t, a, chains, chunks)
	a.Kill()
	b := sharing(t, over(t, s3.Endpoint))
	s.Check(t, b.Socket, func(number uint64) bool { return number == 0 })
	t.Setenv("KVSTORED_SOCKET", b.Socket)
	space := hex.EncodeToString(s.Committed[0].Space[:])
	for says, args := range map[string][]string{"--yes": {space}, "32 hex digits": {"model", "--yes"}} {
		if code, _, errs := daemon.Run(t, "", append([]string{"forget", "--space"}, args...)...); code == daemon.ExitOK || !strings.Contains(errs, says) {
			t.Errorf("forget %v: exit code %d, %s", args, code, errs)
		}
	}
	want := forgotten{DryRun: true, Known: chunks, Found: chains * chunks}
	_, want.Bytes = objects(t, s3)
	if got := daemon.MustJSON[forgotten](t, "forget", "--space", space, "--dry-run"); got != want {
		t.Errorf("dry run: %+v; want %+v", got, want)
	}
	if n, _ := objects(t, s3); n != chains*chunks {
		t.Fatalf("%d objects after a dry run", n)
	}
	if out := daemon.Must(t, "", "forget", "--space", space, "--yes"); !strings.HasPrefix(out, "6 chunks known here forgotten, and 18 chunks (") {
		t.Errorf("forget: %s", out)
	}
	if n, _ := objects(t, s3); n != 0 {
		t.Errorf("%d objects are left", n)
	}
	clear(s.Flushed)
	for number, n := range s.Check(t, b.Socket, load.Every) {
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
	d := over(t, proxy.Endpoint)
	c := d.Dial(client.Options{Name: "remote", Space: &load.Space})
	if err := load.Put(t.Context(), c, load.Chain(t, load.Space, 1, 4)); err != nil {
		t.Fatal(err)
	}
	flushed, err := c.Flush(t.Context(), false)
	if err != nil || len(flushed.Left) == 0 {
		t.Errorf("a flush without the store left %v, error %v", flushed.Left, err)
	}
	_, stats, _ := daemon.Run(t, "", "stats", "--json", "--socket", d.Socket)
	code, checked, errs := daemon.Run(t, "", "check", "--file-only", "--connect", d.Config)
	if code != daemon.ExitFailure || !strings.Contains(errs, "AccessDenied") {
		t.Errorf("check: exit code %d, %s", code, errs)
	}
	log := d.AwaitSaid("the daemon serves without it") // once it has tried
	for _, text := range []string{stats, checked, errs, log} {
		if strings.Contains(text, s3test.AccessKey) || strings.Contains(text, s3test.SecretKey) {
			t.Errorf("credentials are told:\n%s", text)
		}
	}
	proxy.Set(nil)
	sharing(t, d) // it has not stopped trying
	if code, out, errs := daemon.Run(t, "", "check", "--file-only", "--connect", d.Config); code != daemon.ExitOK || !strings.Contains(out, "can be read, written") {
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
		if strings.HasPrefix(name, config.Default().Remote.S3.Prefix+"/") && !strings.Contains(name, "/canary/") {
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
	daemons := []*daemon.Daemon{sharing(t, over(t, s3.Endpoint)), sharing(t, over(t, s3.Endpoint))}
	g, ctx := errgroup.WithContext(t.Context())
	for _, d := range daemons {
		c := d.Dial(client.Options{Name: "remote", Space: &load.Space})
		g.Go(func() error {
			for number := range uint64(chains) {
				if err := load.Put(ctx, c, load.Chain(t, load.Space, number, chunks)); err != nil {
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
		st := d.Stats()
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

// TestSharedTrace plays 2,000 requests of a real trace through one daemon, and
// again through another that shares nothing but the bucket: with the first one
// still there, and when it is gone.
func TestSharedTrace(t *testing.T) {
	if *sharedTrace == "" {
		t.Skip("-shared-trace is not given")
	}
	const everyToken = "27,441,774"
	big := func(c *config.Config) {
		c.CPU.Capacity, c.Disk.Capacity = 512<<20, 8<<30
		c.Prefetch.Policy = config.PrefetchWaitComplete // however slow the machine is
	}
	play := func(t *testing.T, d *daemon.Daemon) string {
		t.Helper()
		code, out, errs := daemon.Run(t, "", "lab", "replay", "--trace", *sharedTrace, "--limit", "2000", "--payload-bytes", "64KiB", "--save-unfull", "--socket", d.Socket)
		if code != daemon.ExitOK {
			t.Fatalf("replay: exit code %d\n%s%s", code, out, errs)
		}
		return out
	}
	store := func(t *testing.T, d *daemon.Daemon) {
		t.Helper()
		play(t, d)
		d.Flush()
		_, out, _ := daemon.Run(t, "", "stats", "--socket", d.Socket)
		t.Logf("the first daemon:\n%s", out)
	}
	s3 := s3test.Run(t)
	a := sharing(t, over(t, s3.Endpoint, big))
	store(t, a)
	for _, also := range []string{"with the first daemon there", "with the first daemon gone"} {
		b := sharing(t, over(t, s3.Endpoint, big))
		out := play(t, b)
		t.Logf("%s:\n%s", also, out)
		if !strings.Contains(out, everyToken) || !strings.Contains(out, "every byte right") {
			t.Errorf("%s the other one did not hit %s tokens", also, everyToken)
		}
		b.Kill()
		a.Kill()
	}
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
	d := over(t, proxy.Endpoint, func(c *config.Config) {
		c.Log.Level, c.Admin.Listen = "trace", "127.0.0.1:0"
	})
	const serving = `serving admin=(\S+)`
	admin := regexp.MustCompile(serving).FindStringSubmatch(d.AwaitSaid(serving))[1]
	if works {
		sharing(t, d)
	}
	c := d.Dial(client.Options{Name: "remote", Space: &load.Space})

	var said strings.Builder
	say := func(what string, err error) { fmt.Fprintln(&said, what, err) }
	for i, f := range []s3test.Fault{
		{}, // it works
		{Status: 400, Code: "ExpiredToken"}, {Status: 403, Code: "InvalidAccessKeyId"}, {Status: 403, Code: "SignatureDoesNotMatch"},
		{Status: 301, Code: "PermanentRedirect"}, {Status: 500, Code: "InternalError"}, {Status: 503, Code: "SlowDown"},
		{Status: 404, Code: "NoSuchBucket"}, {Reset: true}, {Truncate: true}, {Overlong: true}, {Flip: true},
	} {
		proxy.Set(func(*http.Request) s3test.Fault { return f })
		chain := load.Chain(t, load.Space, uint64(i), 2)
		say("store", load.Put(t.Context(), c, chain))
		flushed, err := c.Flush(t.Context(), true)
		say(fmt.Sprint("flush ", flushed.Left), err)
		unknown := load.Chain(t, load.Space, uint64(1000+i), 2)
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
			{"check", "--file-only", "--connect", d.Config}, {"stats", "--socket", d.Socket}, {"stats", "--json", "--socket", d.Socket},
			{"flush", "--socket", d.Socket}, {"forget", "--tier", "remote", "--yes", "--socket", d.Socket},
			{"forget", "--space", strings.Repeat("ab", 16), "--yes", "--socket", d.Socket},
		} {
			_, out, errs := daemon.Run(t, "", args...)
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
	return said.String() + d.Said()
}

// TestLongPromptAboveRemote: a prompt of 6 times DRAM is put above a disk and a
// bucket, and got byte by byte, from the disk, and from the bucket once the disk
// has nothing. While the bucket is off get returns the prefix that is there.
func TestLongPromptAboveRemote(t *testing.T) {
	const dram, chunks = 16 << 20, 384 // of 256 KiB
	s3 := s3test.Run(t)
	proxy := s3test.RunProxy(t, s3)
	d := sharing(t, over(t, proxy.Endpoint, func(c *config.Config) { c.CPU.Capacity = dram }))
	t.Setenv("KVSTORED_SOCKET", d.Socket)
	noise := make([]byte, 6*dram)
	_, _ = rand.NewChaCha8([32]byte{9}).Read(noise) // never fails
	kv := string(noise)
	prompt := []string{"--chunk-tokens", "1", "--tokens", strings.TrimSuffix(strings.Repeat("1,", chunks), ",")}
	if said := daemon.Must(t, kv, append([]string{"put"}, prompt...)...); !strings.Contains(said, "stored 384 of 384 chunks (96 MiB)") {
		t.Errorf("put: %s", said)
	}
	daemon.Must(t, "", "flush")
	if n, bytes := objects(t, s3); n != chunks {
		t.Errorf("the bucket has %d chunks, of %d bytes; want %d", n, bytes, chunks)
	}
	for _, from := range []string{"disk", "remote"} {
		if got := daemon.Must(t, "", append([]string{"get"}, prompt...)...); got != kv {
			t.Fatalf("from %s %d bytes came back of %d, or others", from, len(got), len(kv))
		}
		daemon.Must(t, "", "forget", "--tier", "disk", "--yes")
	}
	proxy.Set(func(*http.Request) s3test.Fault { return s3test.Fault{Status: 503, Code: "SlowDown"} })
	code, got, said := daemon.Run(t, "", append([]string{"get"}, prompt...)...)
	if code != daemon.ExitFailure || len(got) == len(kv) || !strings.HasPrefix(kv, got) || !strings.Contains(said, "failed") {
		t.Errorf("while the bucket is off: exit code %d, %d bytes, %s", code, len(got), said)
	}
}
