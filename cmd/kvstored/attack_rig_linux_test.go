package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/config"
)

const (
	preyDRAM = 64 << 20
	// cageBytes is what the daemon may have beside its DRAM.
	cageBytes = 1 << 30
	// anonSlack is how much anonymous memory may stay behind an attack.
	anonSlack = 32 << 20
	// restIn bounds how long the daemon may take to come to rest again: the
	// connections of clients that have left end at once, and the runtime gives
	// memory back in the background.
	restIn = 2 * time.Minute
)

// prey is a daemon with all its listeners, in a memory cgroup of its own.
type prey struct {
	t                 testing.TB
	d                 *demoDaemon
	cage              string // its folder; "" = there is none
	resp, lm          string // sockets
	respTCP, adminTCP string // addresses
}

// newPrey starts a daemon that is to be attacked, with so many as limits.chunks.
func newPrey(t *testing.T, chunks int) *prey {
	t.Helper()
	d := daemonFolder(t)
	cfg, err := config.Load(d.config, nil, config.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(d.config)
	p := &prey{t: t, d: d, resp: filepath.Join(dir, "resp.sock"), lm: filepath.Join(dir, "lm.sock")}
	if err := os.Chmod(dir, 0o755); err != nil { // for witnesses
		t.Fatal(err)
	}
	cfg.Listen.Mode, cfg.Admin.Listen, cfg.Log.Format = 0o666, "127.0.0.1:0", "json"
	cfg.CPU.Capacity, cfg.Stop.Flush, cfg.Limits.Chunks = preyDRAM, stopFlush, chunks
	cfg.Listen.RESP, cfg.Listen.LM = []string{p.resp, "127.0.0.1:0"}, p.lm
	cfg.Listen.RESPPasswordFile = write(t, "secret\n")
	configure(t, d, &cfg)
	p.cage = makeCage(t, preyDRAM+cageBytes)
	p.launch()
	t.Cleanup(d.kill) // before the cage goes
	if _, err := d.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if heap, err := strconv.ParseInt(p.said(`"heap":(\d+)`), 10, 64); p.cage != "" && (err != nil || heap >= cageBytes) {
		t.Errorf("the limit of the Go heap is %d, not by the cgroup: %v", heap, err)
	}
	p.adminTCP = p.said(`"admin":"(127\.0\.0\.1:\d+)"`)
	p.respTCP = p.said(`"address":"(127\.0\.0\.1:\d+)"`)
	return p
}

// said waits for what the daemon's log says of itself.
func (p *prey) said(pattern string) string {
	p.t.Helper()
	find := regexp.MustCompile(pattern)
	for end := time.Now().Add(demoStartTimeout); ; time.Sleep(demoStartPoll) {
		log, err := os.ReadFile(p.d.log)
		if err != nil {
			p.t.Fatal(err)
		}
		if found := find.FindSubmatch(log); found != nil {
			return string(found[1])
		}
		if time.Now().After(end) {
			p.t.Fatalf("the log does not say %s:\n%s", pattern, log)
		}
	}
}

// makeCage makes a memory cgroup with a limit, of either version. Without one,
// which takes root and a kernel that has it, the tests go on without a limit.
func makeCage(t *testing.T, limit int64) (dir string) {
	t.Helper()
	for _, kind := range []struct{ root, limit, swap string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.swappiness"},
		{"/sys/fs/cgroup", "memory.max", "memory.swap.max"},
	} {
		if _, err := os.Stat(filepath.Join(kind.root, "cgroup.procs")); err != nil {
			continue
		}
		dir = filepath.Join(kind.root, fmt.Sprintf("kvstored-attack-%d-%d", os.Getpid(), time.Now().UnixNano()))
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			_ = os.WriteFile(filepath.Join(dir, kind.swap), []byte("0"), 0o644) // a kernel without swap has no such file
			err = os.WriteFile(filepath.Join(dir, kind.limit), strconv.AppendInt(nil, limit, 10), 0o644)
		}
		if err == nil {
			t.Cleanup(func() { removeCage(t, dir) })
			return dir
		}
		_ = os.Remove(dir)
		t.Logf("no memory cgroup can be made at %s: %v", kind.root, err)
	}
	t.Log("there is no memory cgroup here: the daemon runs without a limit on its memory")
	return ""
}

// removeCage waits for the last process of a cage to be gone.
func removeCage(t *testing.T, dir string) {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := os.Remove(dir)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Errorf("the cgroup stays: %v", err)
			return
		}
	}
}

// patience bounds what takes moments.
const patience = time.Minute

// launch starts the daemon inside its cage from its first page on.
func (p *prey) launch() {
	p.t.Helper()
	program, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	log, err := os.OpenFile(p.d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	enter := ""
	if p.cage != "" {
		enter = `echo $$ > "$1"/cgroup.procs && `
	}
	cmd := exec.Command("sh", "-c", enter+`exec "$0" serve --config "$2"`, program, p.cage, p.d.config)
	cmd.Stderr, cmd.Env = log, withoutOurs(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.d.cmd, p.d.ended = cmd, make(chan error, 1)
	ended := p.d.ended
	go func() { ended <- cmd.Wait() }()
}

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
	proc := fmt.Sprintf("/proc/%d/", p.d.cmd.Process.Pid)
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
	select {
	case err := <-p.d.ended:
		p.d.cmd = nil
		killed, _ := os.ReadFile(filepath.Join(p.cage, "memory.oom_control"))
		p.t.Fatalf("the daemon has ended: %v; its cgroup: %s\n%s", p.d.failed(err), killed, p.logEnd())
	default:
	}
}

// logEnd is the end of what the daemon's log says: all goroutines, or why it panicked.
func (p *prey) logEnd() []byte {
	log, _ := os.ReadFile(p.d.log)
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
			_ = p.d.cmd.Process.Signal(syscall.SIGQUIT)
			<-p.d.ended
			p.d.cmd = nil
			p.t.Fatalf("it does not come to rest: %v, before the attack %v (%v); %s\n%s", after, before, err, heap, p.logEnd())
		}
	}
}
