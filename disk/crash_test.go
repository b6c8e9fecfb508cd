package disk

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

var crashRounds = flag.Int("crash-rounds", 5, "how often the crash test kills its child")

const crashDirEnv = "KVSTORED_TEST_CRASH_DIR"

// crashSize makes the size of a payload from its number.
func crashSize(n int) int { return 1 + n*104_729%600_000 }

// crashOptions are those of a tier over two paths below dir.
func crashOptions(dir string) Options {
	o := testOptions(filepath.Join(dir, "a"))
	o.Paths = append(o.Paths, filepath.Join(dir, "b"))
	return o
}

// TestCrashChild is the process that is killed. It stores keys for ever, in
// an order that depends on the round, and says which are acknowledged.
func TestCrashChild(t *testing.T) {
	dir := os.Getenv(crashDirEnv)
	if dir == "" {
		t.Skip("only as a child")
	}
	round, _ := strconv.Atoi(os.Getenv(crashDirEnv + "_ROUND"))
	m := newMemory(t)
	d, err := Open(crashOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	go d.Run(t.Context()) //nolint:errcheck // ends with the process
	fmt.Println("open")
	go d.Recover(t.Context(), func([]tier.Record) {}) //nolint:errcheck // as well
	for i := round * 100_000; ; i++ {
		putOrTrim(t, d, m, i, crashSize(i), func([]key.Key) {})
		if d.Has(keyOf(i)) {
			fmt.Println("ok", i)
		}
	}
}

// TestCrash kills a process that writes and evicts, again and again, and
// checks after each restart that every key is absent or exact, and that what
// was acknowledged last is there.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	m := newMemory(t)
	for round := range *crashRounds {
		acked := killedChild(t, dir, round)
		d, stop := start(t, crashOptions(dir), nil)
		got := recoverAll(t, d)
		for k, r := range got {
			n := int(uint64(k.Hash[0])|uint64(k.Hash[1])<<8|uint64(k.Hash[2])<<16|uint64(k.Hash[3])<<24) - 1
			if int(r.Size) != crashSize(n) {
				t.Fatalf("key %d has %d bytes", n, r.Size)
			}
			mustGet(t, d, m, n, crashSize(n))
		}
		// 48 MiB hold at least 80 payloads of at most 600,000 bytes.
		for _, n := range acked[max(0, len(acked)-40):] {
			if _, is := got[keyOf(n)]; !is {
				t.Fatalf("round %d: key %d was acknowledged and is lost", round, n)
			}
		}
		if s := d.Stats(); s.Corrupt != 0 || s.Counters["recover_lost"] != 0 {
			t.Fatalf("round %d: corrupt %d, lost %d", round, s.Corrupt, s.Counters["recover_lost"])
		}
		if at := occupied(dir); at > crashOptions(dir).CapacityBytes {
			t.Fatalf("round %d: %d bytes on disk", round, at)
		}
		recount(t, d)
		stop()
	}
}

func killedChild(t *testing.T, dir string, round int) (acked []int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), exe, "-test.run", "^TestCrashChild$")
	child.Env = append(os.Environ(), crashDirEnv+"="+dir, crashDirEnv+"_ROUND="+strconv.Itoa(round))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var n int
		if lines.Text() == "open" {
			time.AfterFunc(time.Duration(50+rand.IntN(400))*time.Millisecond, func() { _ = child.Process.Kill() })
		} else if _, err := fmt.Sscanf(lines.Text(), "ok %d", &n); err == nil {
			acked = append(acked, n)
		}
	}
	var killed *exec.ExitError
	if err := child.Wait(); !errors.As(err, &killed) || killed.Exited() {
		t.Fatalf("the child ended by itself: %v", err)
	}
	return acked
}

// A copy of the directory, taken while it is written to, is a crash too, and a
// worse one: it is torn.
func TestTornCopy(t *testing.T) {
	o := testOptions(t.TempDir())
	d, _ := start(t, o, nil)
	m := newMemory(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			putOrTrim(t, d, m, i, crashSize(i), func([]key.Key) {})
		}
	}()
	for d.Stats().Evictions == 0 {
		time.Sleep(time.Millisecond)
	}
	torn := testOptions(t.TempDir())
	copyTorn(t, o.Paths[0], torn.Paths[0])
	cancel()
	<-done

	copied, _ := start(t, torn, nil)
	for k := range recoverAll(t, copied) {
		n := int(uint64(k.Hash[0])|uint64(k.Hash[1])<<8|uint64(k.Hash[2])<<16) - 1
		if err := get(t, copied, m, n, crashSize(n)); err != nil && !errors.Is(err, tier.ErrCorrupt) {
			t.Fatal(err)
		}
	}
	checkBooks(t, copied)
}
