package trouble

import (
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/e2e/records"
)

const (
	limitBytes   = 4 << 20 // less than a segment
	limitClients = 3
)

// A daemon under full load whose files may not grow any more goes on from
// DRAM: no client fails, no wrong byte is read. When they may again the disk
// is used again, without a restart.
func TestFileSizeLimit(t *testing.T) {
	const disk = 1 << 30
	d := load.Folder(t, 64<<20, disk)
	d.Start()
	s := load.NewBook()
	s.Trouble = true
	var clients sync.WaitGroup
	for i := range limitClients {
		clients.Go(func() { s.Store(t, d.Socket, rand.New(rand.NewPCG(uint64(i), 0))) })
	}
	// until waits for what the disk tier is to have come to.
	until := func(what string, is func(daemon.Tier) bool) (at daemon.Tier) {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
			st, err := d.Ask(t.Context())
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
		return s.Next
	}

	calm := until("chunks on disk", func(v daemon.Tier) bool { return v.Entries > 100 })
	d.LimitFiles(limitBytes)
	until("the disk is off", func(v daemon.Tier) bool { return v.Off })
	for more := begun() + 50; begun() < more && !t.Failed(); {
		time.Sleep(10 * time.Millisecond) // clients store all the same
	}
	d.LimitFiles(unix.RLIM_INFINITY)
	failed := until("the disk works again", func(v daemon.Tier) bool { return !v.Off })
	until("chunks on disk again", func(v daemon.Tier) bool { return v.PutBytes > failed.PutBytes+calm.PutBytes })
	d.Kill()
	clients.Wait()

	left := records.Count(t, d.Disk)
	st := d.Start()
	if got := st.Store.Tiers["disk"]; got.Evictions == 0 && (got.Entries != left.Entries || got.UsedBytes != left.ExtentBytes) {
		t.Errorf("the daemon counts %d entries and %d bytes; there were %+v", got.Entries, got.UsedBytes, left)
	}
	s.Age(disk)
	s.Check(t, d.Socket, load.Every)
}

// A daemon that may open too few files for what lies on its disk says so, and
// serves without it if there are enough for that; none takes it for damage,
// however often it is tried.
func TestFileLimit(t *testing.T) {
	const maxFiles = 200
	d := load.Folder(t, 16<<20, 64<<20)
	t.Setenv("KVSTORED_SOCKET", d.Socket)
	d.Start()
	payload := strings.Repeat("payload ", 32<<10)
	prompt := []string{"--chunk-tokens", "1", "--tokens", "1,1,1,1"}
	daemon.Must(t, payload, append([]string{"put"}, prompt...)...)
	d.Stop()
	refused := 0
	for files := 12; ; files++ {
		if files > maxFiles {
			t.Fatalf("%d files are not enough", maxFiles)
		}
		limited := d.Beside()
		limited.Log = filepath.Join(t.TempDir(), "log")
		limited.Under = []string{"sh", "-c", `ulimit -n "$0"; exec "$@"`, strconv.Itoa(files)}
		limited.Launch()
		serving, err := false, error(nil)
		for ended := false; !ended && !serving; {
			ended, err = limited.Ended(10 * time.Millisecond)
			serving = strings.Contains(limited.Said(), "INF serving")
		}
		limited.Kill()
		text := limited.Said()
		off := strings.Contains(text, "cannot be opened")
		if serving && !off {
			break // that many are enough
		}
		if strings.Contains(text, "damaged") || !strings.Contains(text, "too many open files") {
			t.Fatalf("with %d files: %v: %s", files, err, text)
		}
		if off {
			refused++
			if !strings.Contains(text, "ulimit -n") {
				t.Errorf("with %d files it does not say what to do: %s", files, text)
			}
		}
	}
	if refused <= 3 { // as many starts that get stuck in a database end its use
		t.Errorf("%d starts failed for want of files", refused)
	}
	d.Start()
	if got := daemon.Must(t, "", append([]string{"get"}, prompt...)...); got != payload {
		t.Errorf("%d bytes are back, or others than were stored", len(got))
	}
}
