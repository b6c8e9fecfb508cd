package wire

import (
	"bytes"
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	clientFrames = flag.Int("clients.frames", 3000, "frames on which the clients of all languages must agree")
	clientSeed   = flag.Uint64("clients.seed", 1, "where their damages begin")
	clientCorpus = flag.String("clients.corpus", "", "a folder of frames, besides: the corpus of the C client's fuzzer")
)

// others are the clients in other languages, by what they do not have of the protocol.
var others = []struct {
	name    string
	lacks   []Op
	command func(*testing.T) (dir string, args []string)
}{
	{"C", []Op{OpBatch, OpWarm, OpHint, OpEvents, OpRead}, cDecoder},
	{"Python", nil, pythonDecoder},
}

// accepted reports whether the Go client takes a frame of the daemon of an operation
// that the other client has too.
func accepted(frame []byte, lacks []Op) bool {
	if len(frame) < HeaderBytes {
		return false
	}
	h, body := DecodeHeader(frame), frame[HeaderBytes:]
	if int(h.BodyBytes) != len(body) || len(body)%8 != 0 {
		return false
	}
	var m Message
	switch {
	case h.Kind == KindReply && h.Code != CodeOK:
		m = new(ErrorReply)
	case slices.Contains(lacks, h.Op):
		return false
	case h.Kind == KindReply && newReply[h.Op] != nil && h.Op != 0:
		m = newReply[h.Op]()
	case h.Kind == KindPush && h.Op == OpPrefetch:
		m = new(JobState)
	case h.Kind == KindPush && h.Op == OpReserve:
		m = new(CodeReply)
	case h.Kind == KindPush && h.Op == OpEvents:
		m = new(EventsPush)
	default:
		return false
	}
	return m.Decode(body) == nil
}

// damaged are frames of the daemon: golden ones, some with bytes changed, cut
// off, or appended.
func damaged(t *testing.T, n int) [][]byte {
	r := rand.New(rand.NewPCG(*clientSeed, 0))
	var whole [][]byte
	for _, g := range golden {
		if g.h.Kind != KindRequest {
			frame := readGolden(t, g.name)
			whole = append(whole, frame, readSchema(t).Newer(frame))
		}
	}
	frames := whole
	for len(frames) < n {
		f := append([]byte(nil), whole[r.IntN(len(whole))]...)
		for range r.IntN(4) {
			i := HeaderBytes + r.IntN(max(1, len(f)-HeaderBytes))
			if i < len(f) {
				f[i] = []byte{0, 1, 2, 7, 8, 16, 255, f[i] ^ 1, f[i] ^ 128, f[i] + 8}[r.IntN(10)]
			}
		}
		if r.IntN(4) == 0 {
			f = f[:HeaderBytes+(len(f)-HeaderBytes)/8*r.IntN(9)/8*8]
		}
		if r.IntN(8) == 0 {
			f = append(f, make([]byte, 8*r.IntN(4))...)
		}
		binary.LittleEndian.PutUint32(f, uint32(len(f)-HeaderBytes))
		frames = append(frames, f)
	}
	return frames
}

// corpus are the frames of -clients.corpus.
func corpus(t *testing.T) (frames [][]byte) {
	if *clientCorpus == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(*clientCorpus, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no frames in %s: %v", *clientCorpus, err)
	}
	for _, path := range files {
		f, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(f) >= HeaderBytes {
			binary.LittleEndian.PutUint32(f, uint32(len(f)-HeaderBytes)) // as the fuzzer does
			frames = append(frames, f)
		}
	}
	return frames
}

// TestClientsAgree: what one client takes for a frame of the daemon all take, in
// Go, C and Python.
func TestClientsAgree(t *testing.T) {
	frames := append(damaged(t, *clientFrames), corpus(t)...)
	for _, other := range others {
		t.Run(other.name, func(t *testing.T) {
			dir, args := other.command(t)
			compare(t, dir, args, frames, other.lacks)
		})
	}
}

// compare has another client judge frames, each behind its length of 4 bytes.
func compare(t *testing.T, dir string, args []string, frames [][]byte, lacks []Op) {
	var in []byte
	for _, f := range frames {
		in = append(binary.LittleEndian.AppendUint32(in, uint32(len(f))), f...)
	}
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stderr = dir, bytes.NewReader(in), t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Fields(string(out))
	if len(said) != len(frames) {
		t.Fatalf("%d answers about %d frames", len(said), len(frames))
	}
	took := 0
	for i, f := range frames {
		want := "refused"
		if accepted(f, lacks) {
			want, took = "accepted", took+1
		}
		if said[i] != want {
			t.Errorf("%x: %s, Go says %s", f, said[i], want)
		}
	}
	if took < len(frames)/10 || took > len(frames)*9/10 {
		t.Errorf("%d of %d frames were accepted: the damages test too little", took, len(frames))
	}
}

// TestNumbersInC: the numbers of the C client are those of the schema, and its header has
// every code.
func TestNumbersInC(t *testing.T) {
	s := readSchema(t)
	numbers := make(map[string]string)
	for _, file := range []string{"kvstored.h", "kvstored.c"} {
		text, err := os.ReadFile(filepath.Join("../../clients/c", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\b([A-Z]+_[A-Z_]+) = (0x[0-9a-f]+|[0-9]+)\b`).FindAllStringSubmatch(string(text), -1) {
			numbers[m[1]] = m[2]
		}
	}
	check := func(name string, want uint64) {
		t.Helper()
		if n, err := strconv.ParseUint(numbers[name], 0, 64); err != nil || n != want {
			t.Errorf("%s is %q in C, want %d", name, numbers[name], want)
		}
	}
	for _, c := range s.Codes {
		check("KVS_"+strings.ToUpper(c[1].(string)), uint64(c[0].(float64)))
	}
	for name, o := range s.Operations {
		if c := "OP_" + strings.ToUpper(name); numbers[c] != "" || !slices.Contains(others[0].lacks, Op(o.Op)) {
			check(c, uint64(o.Op))
		}
	}
	for prefix, enum := range map[string]string{"KVS_RETRY_": "retry", "FORM_": "forms", "CHAIN_": "chain_flags", "KVS_": "tiers"} {
		for name, n := range s.Enums[enum] {
			check(prefix+strings.ToUpper(name), uint64(n))
		}
	}
	for name, n := range s.Enums["features"] {
		if name != "keep" && name != "directory" { // which it cannot ask for
			check("KVS_"+strings.ToUpper(name), uint64(n))
		}
	}
	check("KVS_MAX_STR", s.Limits["str_bytes"])
	check("MAX_BODY", s.Limits["reply_bytes"])
	check("MAX_TAGS", s.Limits["tags"])
	check("MAX_CHUNKS", s.Limits["chain_chunks"])
	check("MAX_DESCRIPTORS", s.Limits["descriptors"])
}

func cDecoder(t *testing.T) (string, []string) {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		missing(t, "there is no C compiler")
	}
	program := filepath.Join(t.TempDir(), "decode")
	out, err := exec.CommandContext(t.Context(), compiler, "-std=c99", "-g", "-fsanitize=address,undefined",
		"-fno-sanitize-recover=all", "-o", program, "../../clients/c/test/decode.c").CombinedOutput()
	if err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return "", []string{program}
}

func pythonDecoder(t *testing.T) (string, []string) {
	python, err := exec.LookPath("python3")
	if err != nil {
		missing(t, "there is no python3")
	}
	return "../../clients/python", []string{python, "-B", "-m", "tests.decode"}
}

func missing(t *testing.T, what string) {
	if os.Getenv("CI") != "" {
		t.Fatal(what + ", and CI skips nothing")
	}
	t.Skip(what)
}
