package attack

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
)

const (
	preyDRAM = 64 << 20
	// cageBytes is what the daemon may have beside its DRAM.
	cageBytes = 1 << 30
	// anonSlack is how much anonymous memory may stay behind an attack.
	anonSlack = 32 << 20
	// bookBytes is what a chunk on disk takes of it.
	bookBytes = 512
	// restIn bounds how long the daemon may take to come to rest again: the
	// connections of clients that have left end at once, and the runtime gives
	// memory back in the background.
	restIn = 2 * time.Minute
)

// prey is a daemon with all its listeners, in a memory cgroup of its own.
type prey struct {
	t                 testing.TB
	d                 *daemon.Daemon
	cage              string // its folder; "" = there is none
	known             int    // most chunks in a tier
	resp              string // a socket
	respTCP, adminTCP string // addresses
}

// newPrey starts a daemon that is to be attacked.
func newPrey(t *testing.T) *prey {
	t.Helper()
	p := &prey{t: t}
	cage, under := daemon.Cage(t, preyDRAM+cageBytes) // which goes after the daemon
	p.cage = cage
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.d = daemon.Folder(t, func(c *config.Config) {
		dir := filepath.Dir(c.Listen.Socket)
		p.resp = filepath.Join(dir, "resp.sock")
		c.Listen.Mode, c.Admin.Listen, c.Log.Format = 0o666, "127.0.0.1:0", "json"
		c.CPU.Capacity, c.Stop.Flush = preyDRAM, stopFlush
		c.Listen.RESP = []string{p.resp, "127.0.0.1:0"}
		c.Listen.RESPPasswordFile = password
	})
	if err := os.Chmod(p.d.Dir, 0o755); err != nil { // for witnesses
		t.Fatal(err)
	}
	p.d.Under = under
	p.d.Start()
	if heap, err := strconv.ParseInt(p.d.Find(`"heap":(\d+)`), 10, 64); p.cage != "" && (err != nil || heap >= cageBytes) {
		t.Errorf("the limit of the Go heap is %d, not by the cgroup: %v", heap, err)
	}
	var err error
	if p.known, err = strconv.Atoi(p.d.Find(`"clients":\d+,"chunks":(\d+)`)); err != nil {
		t.Fatal(err)
	}
	p.adminTCP = p.d.Find(`"admin":"(127\.0\.0\.1:\d+)"`)
	p.respTCP = p.d.Find(`"address":"(127\.0\.0\.1:\d+)"`)
	return p
}

const (
	stopFlush = 500 * time.Millisecond // the stop.flush of daemons that are ended here
	// stopMost is how long their end may take: five seconds are promised beside the flush,
	// and a loaded machine may add some.
	stopMost = stopFlush + 20*time.Second
	// patience bounds what takes moments.
	patience = time.Minute
)

// footprint is what a process has of what attacks could use up.
type footprint struct {
	anon            int64 // bytes
	fds, goroutines int
}

func (u footprint) String() string {
	return fmt.Sprintf("%d MiB of anonymous memory, %d descriptors, %d goroutines", u.anon>>20, u.fds, u.goroutines)
}

// metrics is what the daemon exports.
func (p *prey) metrics() (string, error) {
	quick := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := quick.Get("http://" + p.adminTCP + "/metrics")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// settled reports whether u is no more than before was, but for anonymous
// memory that may stay.
func (u footprint) settled(before footprint) bool {
	return u.anon <= before.anon+anonSlack && u.fds <= before.fds && u.goroutines <= before.goroutines
}

// footprint asks the kernel and the daemon.
func (p *prey) footprint() (u footprint, err error) {
	if u, err = p.held(); err != nil {
		return u, err
	}
	text, err := p.metrics()
	if err != nil {
		return u, err
	}
	_, count, _ := strings.Cut(text, "\ngo_goroutines ")
	if _, err = fmt.Sscan(count, &u.goroutines); err != nil {
		return u, fmt.Errorf("go_goroutines: %w", err)
	}
	return u, nil
}

// held is the footprint without goroutines, of the kernel: the daemon allocates
// nothing for it.
func (p *prey) held() (u footprint, err error) {
	proc := fmt.Sprintf("/proc/%d/", p.d.Process().Pid)
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		return u, err
	}
	_, rest, _ := bytes.Cut(status, []byte("RssAnon:"))
	if _, err = fmt.Sscanf(string(rest), "%d kB", &u.anon); err != nil {
		return u, fmt.Errorf("RssAnon: %w", err)
	}
	u.anon <<= 10
	open, err := os.ReadDir(proc + "fd")
	if err != nil {
		return u, err
	}
	u.fds = len(open)
	return u, nil
}

// lives fails the test where the daemon has ended, and says why.
func (p *prey) lives() {
	p.t.Helper()
	if ended, err := p.d.Ended(0); ended {
		killed, _ := os.ReadFile(filepath.Join(p.cage, "memory.oom_control"))
		p.t.Fatalf("the daemon has ended: %v; its cgroup: %s\n%s", err, killed, p.logEnd())
	}
}

// logEnd is the end of what the daemon's log says: all goroutines, or why it panicked.
func (p *prey) logEnd() string {
	log := p.d.Said()
	return log[max(0, len(log)-64<<10):]
}

// heap is what the Go heap of the daemon consists of, and what the runtime keeps beside
// it: live and garbage, free, given back, books of its own.
func (p *prey) heap() string {
	text, err := p.metrics()
	if err != nil {
		return err.Error()
	}
	var out []string
	for line := range strings.Lines(text) {
		var n float64
		if name, value, ok := strings.Cut(line, "_bytes "); ok && strings.HasPrefix(name, "go_memstats_") {
			if _, err := fmt.Sscan(value, &n); err == nil {
				out = append(out, fmt.Sprintf("%s %.0f KiB", strings.TrimPrefix(name, "go_memstats_"), n/1024))
			}
		}
	}
	return strings.Join(out, ", ")
}

// rests waits until the daemon is where it was before.
func (p *prey) rests(before footprint) (after footprint) {
	p.t.Helper()
	for end := time.Now().Add(restIn); ; time.Sleep(100 * time.Millisecond) {
		p.lives()
		var err error
		if after, err = p.held(); err == nil && after.settled(before) {
			if after, err = p.footprint(); err == nil && after.settled(before) {
				return after
			}
		}
		if time.Now().After(end) {
			heap := p.heap()
			p.d.Signal(syscall.SIGQUIT)
			_ = p.d.Wait()
			p.t.Fatalf("it does not come to rest: %v, before the attack %v (%v); %s\n%s", after, before, err, heap, p.logEnd())
		}
	}
}

// ends stops the daemon, which closes everything in its time.
func (p *prey) ends() {
	p.t.Helper()
	if err := p.d.StopWithin(stopMost); err != nil {
		p.t.Errorf("it was not closed: %v", err)
	}
}
