package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kvstored runs one command line.
func kvstored(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheckSaysThatTheDiskIsSmaller(t *testing.T) {
	at := "disk: {paths: [" + t.TempDir() + "], "
	for text, want := range map[string]string{
		at + "capacity: 1000TiB}\n":                 "kvstored: warning: disk tier: disk.capacity is 1000 TiB",
		at + "capacity: 1GiB, min_free: 1000TiB}\n": "too little for a segment and the database",
		at + "capacity: 1GiB, min_free: 1MiB}\n":    "",
	} {
		text += "listen: {socket: " + t.TempDir() + "/s}\nadmin: {listen: 127.0.0.1:0}\n"
		code, _, says := kvstored(t, "", "check", write(t, text))
		if code != exitOK || !strings.Contains(says, want) || strings.Contains(says, "disk tier:") != (want != "") {
			t.Errorf("%s: exit code %d, %q; want the warning %q", text, code, says, want)
		}
	}
}

func TestExitCodes(t *testing.T) {
	nobody := filepath.Join(t.TempDir(), "nobody.sock")
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"version"}, exitOK, ""},
		{[]string{"check", "--file-only", write(t, "cpu: {capacity: 1000TiB}\n")}, exitOK, ""},
		{[]string{"nonsense"}, exitUsage, "nonsense"},
		{[]string{"stat"}, exitUsage, "did you mean stats?"},
		{[]string{"stats", "--nonsense"}, exitUsage, "stats --help"},
		{[]string{"stats", "extra"}, exitUsage, "extra"},
		{[]string{"lookup"}, exitUsage, "tokens"},
		{[]string{"lookup", "--tokens", "1,x"}, exitUsage, `"x"`},
		{[]string{"lookup", "--tokens", "4294967296"}, exitUsage, "4294967295"},
		{[]string{"lookup", "--text", "a", "--chunk-tokens", "0"}, exitUsage, "chunk tokens"},
		{[]string{"check", write(t, "cpu: {capacity: 1}\nfoo: 1\n")}, exitConfig, "file:2:1: foo: "},
		{[]string{"check", nobody}, exitConfig, "nobody.sock"},
		{[]string{"serve", "--config", write(t, "foo: 1\n")}, exitConfig, "file:1:1: foo: "},
		{[]string{"stats", "--socket", nobody}, exitUnreachable, "kvstored serve"},
		{[]string{"flush", "--socket", nobody}, exitUnreachable, "--socket"},
		{[]string{"get", "--text", "a", "--socket", nobody}, exitUnreachable, nobody},
	} {
		code, _, stderr := kvstored(t, "", tt.args...)
		if code != tt.code || !strings.Contains(stderr, tt.says) {
			t.Errorf("%s: exit code %d, want %d; it says %q, want %q", strings.Join(tt.args, " "), code, tt.code, stderr, tt.says)
		}
	}
}

// TestHandsOn goes from put to get.
func TestHandsOn(t *testing.T) {
	serveHere(t)
	payload := strings.Repeat("0123456789", 1000)[:9999]
	prompt := []string{"--text", "You are a helpful assistant.", "--chunk-tokens", "8"} // 3 chunks and a half
	with := func(command string, more ...string) []string {
		return append(append([]string{command}, prompt...), more...)
	}

	code, out, errs := kvstored(t, "", with("get")...)
	if code != exitFailure || out != "" {
		t.Errorf("get before put: exit code %d, %d bytes, %s", code, len(out), errs)
	}
	if code, out, errs = kvstored(t, payload, with("put")...); code != exitOK || !strings.Contains(out, "stored 4 of 4 chunks") {
		t.Fatalf("put: exit code %d, %s%s", code, out, errs)
	}
	if code, out, errs = kvstored(t, payload, with("put", "--json")...); code != exitOK || !strings.Contains(out, `"present_chunks": 4`) {
		t.Errorf("put again: exit code %d, %s%s", code, out, errs)
	}
	other := strings.Replace(payload, "5", "6", 1) // in the first chunk
	if code, out, errs = kvstored(t, other, with("put")...); code != exitFailure || !strings.Contains(errs, "other bytes were stored before for 1 chunk") {
		t.Errorf("put of other bytes: exit code %d, %s%s", code, out, errs)
	}
	if code, out, errs = kvstored(t, "", with("get")...); code != exitOK || out != payload {
		t.Errorf("get: exit code %d, %d bytes, %s", code, len(out), errs)
	}
	if code, out, errs = kvstored(t, "", with("get", "--salt", "tenant")...); code != exitFailure || out != "" {
		t.Errorf("get of another tenant: exit code %d, %d bytes, %s", code, len(out), errs)
	}
	if code, out, errs = kvstored(t, "", with("forget", "--yes", "--salt", "tenant")...); code != exitFailure || out != "" || !strings.Contains(errs, "nothing is stored") {
		t.Errorf("forget for another tenant: exit code %d, %s%s", code, out, errs)
	}
	if code, out, errs = kvstored(t, "", with("forget", "--yes")...); code != exitOK || out != "4 chunks forgotten\n" {
		t.Errorf("forget: exit code %d, %s%s", code, out, errs)
	}
	if code, out, errs = kvstored(t, payload, with("put")...); code != exitOK || !strings.Contains(out, "stored 4 of 4 chunks") {
		t.Errorf("put after forget: exit code %d, %s%s", code, out, errs)
	}
	prompt[1] = "You are a helpful robot."
	if code, out, errs = kvstored(t, "", with("get")...); code != exitOK || out != payload[:5000] {
		t.Errorf("get of a prompt that shares two chunks: exit code %d, %d bytes, %s", code, len(out), errs)
	}
	code, out, _ = kvstored(t, "", with("lookup", "--json")...)
	var r lookupResult
	if err := json.Unmarshal([]byte(out), &r); code != exitOK || err != nil || r.MatchedChunks != 2 || r.MatchedTokens != 16 || r.Tiers["cpu"].Chunks != 2 {
		t.Errorf("lookup: exit code %d, %s, %v", code, out, err)
	}
	if code, out, _ = kvstored(t, "", "stats"); code != exitOK || !strings.Contains(out, "hit in DRAM") {
		t.Errorf("stats: exit code %d, %s", code, out)
	}
	if code, out, _ = kvstored(t, "", "stats", "--json"); code != exitOK || !json.Valid([]byte(out)) {
		t.Errorf("stats --json: exit code %d, %s", code, out)
	}
}

// TestCut: payloads are equal but the last, none is empty, nothing is lost.
func TestCut(t *testing.T) {
	for n := 1; n < 20; n++ {
		for size := range 60 {
			p := noise(1, size)
			parts, err := cut(bytes.NewReader(p), int64(size), n)
			if size < n {
				if err == nil {
					t.Errorf("%d bytes were cut into %d", size, n)
				}
				continue
			}
			sum := 0
			for i, part := range parts.sizes() {
				if part == 0 || i < n-1 && part != parts.sizes()[0] {
					t.Fatalf("%d bytes into %d: part %d has %d, the first %d", size, n, i, part, parts.sizes()[0])
				}
				dst := make([]byte, part)
				if err := parts.read(i, dst); err != nil || !bytes.Equal(dst, p[sum:sum+int(part)]) {
					t.Fatalf("%d bytes into %d: part %d: %v", size, n, i, err)
				}
				sum += int(part)
			}
			if err != nil || sum != size {
				t.Fatalf("%d bytes into %d: %v, %d bytes", size, n, err, sum)
			}
		}
	}
	if _, err := cut(nil, 1<<40, 2); err == nil {
		t.Error("a payload of half a TiB")
	}
}
