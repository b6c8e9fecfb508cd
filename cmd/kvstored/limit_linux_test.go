package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// limitBytes is less than a segment.
const limitBytes = 4 << 20

// A daemon under full load whose files may not grow any more goes on from
// DRAM: no client fails, no wrong byte is read. When they may again the disk
// is used again, without a restart.
func TestFileSizeLimit(t *testing.T) {
	const disk = 1 << 30
	d := crashDaemon(t, 64<<20, disk)
	if _, err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := newStored()
	s.trouble = true
	var clients sync.WaitGroup
	for i := range crashClients {
		clients.Go(func() { s.store(t, d.socket, rand.New(rand.NewPCG(uint64(i), 0))) })
	}
	// until waits for what the disk tier is to have come to.
	until := func(what string, is func(tierView) bool) (at tierView) {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
			st, err := d.stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if at = st.Store.Tiers["disk"]; is(at) {
				return at
			}
			if time.Now().After(deadline) || t.Failed() {
				t.Fatalf("%s: never; %+v", what, at)
			}
		}
	}
	begun := func() uint64 {
		s.Lock()
		defer s.Unlock()
		return s.next
	}

	calm := until("chunks on disk", func(v tierView) bool { return v.Entries > 100 })
	limit(t, d.cmd.Process.Pid, limitBytes)
	until("the disk is off", func(v tierView) bool { return v.Off })
	for more := begun() + 50; begun() < more && !t.Failed(); {
		time.Sleep(10 * time.Millisecond) // clients store all the same
	}
	limit(t, d.cmd.Process.Pid, unix.RLIM_INFINITY)
	failed := until("the disk works again", func(v tierView) bool { return !v.Off })
	until("chunks on disk again", func(v tierView) bool { return v.PutBytes > failed.PutBytes+calm.PutBytes })
	d.kill()
	clients.Wait()

	records := recountRecords(t, filepath.Join(filepath.Dir(d.socket), "disk"))
	st, err := d.start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := st.Store.Tiers["disk"]; got.Evictions == 0 && (got.Entries != records.entries || got.UsedBytes != records.extentBytes) {
		t.Errorf("the daemon counts %d entries and %d bytes; there were %+v", got.Entries, got.UsedBytes, records)
	}
	s.age(disk)
	s.check(t, d.socket, every)
}

// limit bounds how large the files of a process may become.
func limit(t *testing.T, pid int, bytes uint64) {
	t.Helper()
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil); err != nil {
		t.Fatal(err)
	}
}

// A daemon that may open too few files for what lies on its disk says so, and
// serves without it if there are enough for that; none takes it for damage,
// however often it is tried.
func TestFileLimit(t *testing.T) {
	const maxFiles = 200
	d := crashDaemon(t, 16<<20, 64<<20)
	t.Setenv("KVSTORED_SOCKET", d.socket)
	if _, err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	payload := kv(1, 4)
	must(t, payload, prompt("put", 1, 4)...)
	if err := d.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for files := 12; ; files++ {
		if files > maxFiles {
			t.Fatalf("%d files are not enough", maxFiles)
		}
		ctx, cancel := context.WithCancel(t.Context())
		serve := exec.CommandContext(ctx, "sh", "-c", `ulimit -n "$1"; exec "$0" serve --config "$2"`, program, strconv.Itoa(files), d.config)
		says, err := serve.StderrPipe()
		if err == nil {
			err = serve.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		serving, off := false, false
		for lines := bufio.NewScanner(says); lines.Scan(); {
			fmt.Fprintln(&text, lines.Text())
			off = off || strings.Contains(lines.Text(), "cannot be opened")
			if strings.Contains(lines.Text(), "serving") {
				serving = true
				cancel()
			}
		}
		err = serve.Wait()
		cancel()
		if serving && !off {
			break // that many are enough
		}
		if strings.Contains(text.String(), "damaged") || !strings.Contains(text.String(), "too many open files") {
			t.Fatalf("with %d files: %v: %s", files, err, &text)
		}
		if off {
			refused++
			if !strings.Contains(text.String(), "ulimit -n") {
				t.Errorf("with %d files it does not say what to do: %s", files, &text)
			}
		}
	}
	if refused <= 3 { // as many starts that get stuck in a database end its use
		t.Errorf("%d starts failed for want of files", refused)
	}
	if _, err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := must(t, "", prompt("get", 1, 4)...); got != payload {
		t.Errorf("%d bytes are back, or others than were stored", len(got))
	}
}
