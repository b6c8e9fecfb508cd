package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/tier"
)

// TestLookupMentionsTheBucket: who finds less than all of a prompt, and has a
// bucket, learns that it was not asked.
func TestLookupMentionsTheBucket(t *testing.T) {
	const mention = "the bucket is not asked"
	prompt := []string{"lookup", "--text", "a prompt"}
	t.Run("none", func(t *testing.T) {
		serveHere(t)
		if out := must(t, "", prompt...); strings.Contains(out, mention) {
			t.Errorf("without a bucket:\n%s", out)
		}
	})
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true"} {
		t.Setenv(name, value)
	}
	serveHere(t, func(c *config.Config) { // nobody is there
		c.Remote.S3.Bucket, c.Remote.S3.Endpoint, c.Remote.S3.PathStyle = "bucket", "http://127.0.0.1:1", true
	})
	if out := must(t, "", prompt...); !strings.Contains(out, mention) {
		t.Errorf("with a bucket:\n%s", out)
	}
	must(t, "payload", "put", "--text", "a prompt")
	if out := must(t, "", prompt...); strings.Contains(out, mention) {
		t.Errorf("all of it is stored:\n%s", out)
	}
	fails(t, exitUsage, "all machines that share the bucket", "forget", "--tier", "remote")
	fails(t, exitUsage, "for good; add --yes", "forget", "--tier", "disk")
}

// TestWithoutLowerTiers: a daemon that has only DRAM does not speak of a disk,
// nor of a bucket.
func TestWithoutLowerTiers(t *testing.T) {
	resp := ""
	serveHere(t, func(cfg *config.Config) {
		resp = filepath.Join(filepath.Dir(cfg.Listen.Socket), "resp.sock")
		cfg.Listen.RESP = []string{resp}
	})
	if out := must(t, "", "flush"); !strings.HasPrefix(out, "nothing is stored, and there is no tier below DRAM") {
		t.Errorf("flush of nothing: %s", out)
	}
	must(t, "payload", "put", "--text", "a prompt")
	fails(t, exitFailure, "1 chunk not written", "flush")
	fails(t, exitFailure, "no remote tier", "forget", "--tier", "remote", "--yes")
	for _, action := range []string{"--dry-run", "--yes"} {
		fails(t, exitFailure, "'kvstored list spaces' lists those there are", "forget", "--space", strings.Repeat("ab", 16), action)
	}
	code, _, errs := kvstored(t, "", "stats", "--socket", resp)
	if code != exitFailure || !strings.Contains(errs, "use the daemon's listen.socket") || strings.Contains(errs, ": kvstored: ") || strings.Contains(errs, "EOF") {
		t.Errorf("stats of a Redis front end: exit code %d, %s", code, errs)
	}
}

func TestFlushNamesTheTiers(t *testing.T) {
	type tiers = map[tier.Place]uint64
	for want, h := range map[string]*admin.Holdings{
		"everything stored is on disk; just now: 2 writes (6 B)":                                    {Chunks: 4, Tiers: tiers{tier.CPU: 2, tier.Disk: 4}},
		"everything stored is in the bucket; just now: 2 writes (6 B)":                              {Chunks: 4, Tiers: tiers{tier.CPU: 2, tier.Remote: 4}},
		"everything stored is on disk and in the bucket; just now: 2 writes (6 B), disk and bucket": {Chunks: 4, Tiers: tiers{tier.CPU: 2, tier.Disk: 4, tier.Remote: 4}},
		"4 chunks stored: 4 on disk, 1 known to be in the bucket, 1 of Redis clients, which stay here; 2 chunks (9 B) may not be in the bucket: flush --remote uploads them; just now: 2 writes (6 B), disk and bucket": {
			Chunks: 4, Tiers: tiers{tier.Disk: 4, tier.Remote: 1}, Missing: 2, MissingBytes: 9, Local: 1,
		},
		"what waited is written to the tiers below DRAM, as far as there are such; just now: 2 writes (6 B); what is where is not known: denied": nil,
	} {
		if got := written(&client.Flushed{Chunks: 2, Bytes: 6}, h, errors.New("denied")); got != want {
			t.Errorf("%+v: %q; want %q", h, got, want)
		}
	}
}

// quiet is a command that prints to w.
func quiet(w io.Writer) *cobra.Command {
	cmd := new(cobra.Command)
	cmd.SetOut(w)
	return cmd
}

// What a flush has left is where the holdings say, not always in DRAM.
func TestFlushSaysWhereTheRestIs(t *testing.T) {
	f := &client.Flushed{Left: []client.Leftover{{Reason: "tier_off", Chunks: 2, Bytes: 6}}}
	for want, h := range map[string]*admin.Holdings{
		"2 chunks not in the bucket; on disk here, and flush --remote uploads them": {Chunks: 4, Tiers: map[tier.Place]uint64{tier.CPU: 2, tier.Disk: 4, tier.Remote: 2}},
		"2 chunks not written, kept in DRAM until evicted":                          {Chunks: 4, Tiers: map[tier.Place]uint64{tier.CPU: 4, tier.Disk: 2, tier.Remote: 2}},
		"2 chunks not written to every tier below DRAM":                             nil,
	} {
		if err := printFlush(quiet(io.Discard), f, nil, h, errors.New("denied")); err == nil || err.Error() != want {
			t.Errorf("%+v: %v; want %q", h, err, want)
		}
	}
}

// TestUploadFails: the exit code of an upload is 1 where the bucket did not take a chunk, and
// where there is no bucket.
func TestUploadFails(t *testing.T) {
	var out strings.Builder
	up := &admin.Uploaded{Uploaded: store.Uploaded{Volume: writeback.Volume{Chunks: 2, Bytes: 6}, Present: 1, Failed: 1, FailedBytes: 3}}
	if err := printFlush(quiet(&out), &client.Flushed{}, up, nil, errors.New("denied")); err == nil || !strings.Contains(err.Error(), "1 chunk (3 B) could not be uploaded") {
		t.Errorf("one has failed: %v", err)
	}
	if !strings.HasPrefix(out.String(), "uploaded: 2 chunks, 6 B; 1 were there, 0 left out") {
		t.Error(out.String())
	}
	fails(t, exitUsage, "--dry-run goes with --remote", "flush", "--dry-run")
	serveHere(t)
	fails(t, exitFailure, "there is no remote tier", "flush", "--remote")
	fails(t, exitFailure, "there is no remote tier", "flush", "--remote", "--dry-run")
}

// TestAgo: times are told to the nearest unit, as what was made for 5 minutes a moment ago.
func TestAgo(t *testing.T) {
	for seconds, want := range map[float64]string{-1: "0s", 0.016: "0.02s", 119.2: "119s", 120: "2m", 299.9: "5m", 2*3600 + 1799: "2h", 47.6 * 3600: "48h", 60 * 3600: "2d", 2.6 * 86400: "3d"} {
		if got := ago(seconds); got != want {
			t.Errorf("%v s are %s, want %s", seconds, got, want)
		}
	}
}

// TestRewriteTellsWhatItDid: what was taken out is not to be taken out any more.
func TestRewriteTellsWhatItDid(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(file, []byte("write: {queue: 1GiB}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errs := kvstored(t, "", "check", "--rewrite", file)
	if code != exitOK || !strings.Contains(errs, "write.queue: is no key any more") || !strings.HasSuffix(errs, "; it is taken out\n") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// TestWordsOfFaults: a file that is no socket is called so, and no error of a flag is Go's.
func TestWordsOfFaults(t *testing.T) {
	fails(t, exitUnreachable, "/etc/passwd is no socket", "stats", "--socket", "/etc/passwd")
	fails(t, exitUsage, "give a time with its unit", "flush", "--timeout", "5")
	fails(t, exitUsage, "give a number", "demo", "--users", "many")
	serveHere(t)
	code, _, errs := kvstored(t, "", "policy", "set", "cpu", "nosuch")
	if code != exitFailure || !strings.HasPrefix(errs, "kvstored: policy: there is no policy") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}
