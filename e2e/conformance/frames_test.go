package conformance_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/need"
	"github.com/kvstored/kvstored/internal/wire"
)

var (
	clientFrames = flag.Int("frames", 3000, "frames on which the clients of both languages must agree")
	clientSeed   = flag.Uint64("seed", 1, "where their damages begin")
)

// newReply returns an empty reply of each operation.
var newReply = map[wire.Op]func() wire.Message{
	wire.OpHello:     func() wire.Message { return new(wire.HelloReply) },
	wire.OpOpenSpace: func() wire.Message { return new(wire.OpenSpaceReply) },
	wire.OpLookup:    func() wire.Message { return new(wire.LookupReply) },
	wire.OpPrefetch:  func() wire.Message { return new(wire.PrefetchReply) },
	wire.OpWait:      func() wire.Message { return new(wire.JobState) },
	wire.OpCancel:    func() wire.Message { return new(wire.CodeReply) },
	wire.OpReserve:   func() wire.Message { return new(wire.ReserveReply) },
	wire.OpCommit:    func() wire.Message { return new(wire.StoreReply) },
	wire.OpAbort:     func() wire.Message { return new(wire.EmptyReply) },
	wire.OpPut:       func() wire.Message { return new(wire.StoreReply) },
	wire.OpGet:       func() wire.Message { return new(wire.GetReply) },
	wire.OpRelease:   func() wire.Message { return new(wire.ReleaseReply) },
	wire.OpRenew:     func() wire.Message { return new(wire.RenewReply) },
	wire.OpPin:       func() wire.Message { return new(wire.PinReply) },
	wire.OpDelete:    func() wire.Message { return new(wire.DeleteReply) },
	wire.OpFlush:     func() wire.Message { return new(wire.FlushReply) },
	wire.OpStats:     func() wire.Message { return new(wire.StatsReply) },
	wire.OpPing:      func() wire.Message { return new(wire.EmptyReply) },
	wire.OpWarm:      func() wire.Message { return new(wire.WarmReply) },
	wire.OpBatch:     func() wire.Message { return new(wire.BatchReply) },
	wire.OpHint:      func() wire.Message { return new(wire.HintReply) },
	wire.OpEvents:    func() wire.Message { return new(wire.EventsReply) },
}

// accepted reports whether the Go client takes a frame of the daemon.
func accepted(frame []byte) bool {
	if len(frame) < wire.HeaderBytes {
		return false
	}
	h, body := wire.DecodeHeader(frame), frame[wire.HeaderBytes:]
	if int(h.BodyBytes) != len(body) || len(body)%8 != 0 {
		return false
	}
	var m wire.Message
	switch {
	case h.Kind == wire.KindReply && h.Code != wire.CodeOK:
		m = new(wire.ErrorReply)
	case h.Kind == wire.KindReply && newReply[h.Op] != nil:
		m = newReply[h.Op]()
	case h.Kind == wire.KindPush && h.Op == wire.OpPrefetch:
		m = new(wire.JobState)
	case h.Kind == wire.KindPush && h.Op == wire.OpReserve:
		m = new(wire.CodeReply)
	case h.Kind == wire.KindPush && h.Op == wire.OpEvents:
		m = new(wire.EventsPush)
	default:
		return false
	}
	return m.Decode(body) == nil
}

// parseHex reads a file of a frame: hexadecimal bytes, and comments that reach from # to
// the end of the line.
func parseHex(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var digits strings.Builder
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// golden are the replies and pushes of testdata/wire, as this daemon and as a newer one
// sends them.
func golden(t *testing.T) (frames [][]byte) {
	t.Helper()
	for _, pattern := range []string{"*_reply.hex", "*_push.hex", "newer/*.hex"} {
		paths, err := filepath.Glob(filepath.Join(daemon.Root(), "testdata", "wire", pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no frames %s: %v", pattern, err)
		}
		for _, path := range paths {
			frames = append(frames, parseHex(t, path))
		}
	}
	return frames
}

// damaged are frames of the daemon: golden ones, some with bytes changed, cut
// off, or appended.
func damaged(t *testing.T, n int) [][]byte {
	r := rand.New(rand.NewPCG(*clientSeed, 0))
	whole := golden(t)
	frames := whole
	for len(frames) < n {
		f := append([]byte(nil), whole[r.IntN(len(whole))]...)
		for range r.IntN(4) {
			i := wire.HeaderBytes + r.IntN(max(1, len(f)-wire.HeaderBytes))
			if i < len(f) {
				f[i] = []byte{0, 1, 2, 7, 8, 16, 255, f[i] ^ 1, f[i] ^ 128, f[i] + 8}[r.IntN(10)]
			}
		}
		if r.IntN(4) == 0 {
			f = f[:wire.HeaderBytes+(len(f)-wire.HeaderBytes)/8*r.IntN(9)/8*8]
		}
		if r.IntN(8) == 0 {
			f = append(f, make([]byte, 8*r.IntN(4))...)
		}
		binary.LittleEndian.PutUint32(f, uint32(len(f)-wire.HeaderBytes))
		frames = append(frames, f)
	}
	return frames
}

// TestClientsAgree: what the Go client takes for a frame of the daemon the Python client
// takes too, and nothing else.
func TestClientsAgree(t *testing.T) {
	frames := damaged(t, *clientFrames)
	var in []byte
	for _, f := range frames {
		in = append(binary.LittleEndian.AppendUint32(in, uint32(len(f))), f...)
	}
	cmd := exec.CommandContext(t.Context(), need.Python(t), "-B", "-m", "tests.decode")
	cmd.Dir, cmd.Stdin, cmd.Stderr = filepath.Join(daemon.Root(), "clients", "python"), bytes.NewReader(in), t.Output()
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
		if accepted(f) {
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
