package database

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
)

// processName is what the process is called, by which Main knows it.
const processName = "kvstored-database"

const (
	// endTimeout is how long a process may take to end that has hung up.
	endTimeout = 2 * time.Second
	wordsBytes = 4 << 10 // that are kept of what a process says as it ends
)

// Death is what a process ended over.
type Death struct {
	How   string // as os.ProcessState says it
	Words string // its last
}

func (d *Death) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("the database's process ended (%s): %s", d.How, d.Words), ": ")
}

// Open starts a process and opens the database in it; ctx bounds that. Anything
// the machine or Badger has against it is an error.
func Open(ctx context.Context, o Options) (*DB, error) {
	if os.Args[0] == processName {
		return nil, errors.New("database: this program started itself as a database's process, and its main does not call database.Main")
	}
	p, pairs, words, err := start(o.Dir, MemoryLimit(o.MemTableBytes))
	if err != nil {
		return nil, fmt.Errorf("database: start a process: %w", err)
	}
	return Connect(ctx, o, p, pairs, words)
}

// Connect opens a database in a process that serves the other ends of the Pairs; ctx
// bounds that. The process says its words until it ends.
func Connect(ctx context.Context, o Options, p Process, pairs []net.Conn, words io.Reader) (*DB, error) {
	d := newDB(o.Log, p, pairs)
	go func() {
		last := d.listen(words)
		d.end(&Death{How: p.Wait(), Words: last})
	}()
	unbound := context.AfterFunc(ctx, func() { d.Kill(context.Cause(ctx)) })
	defer unbound()
	if err := d.open(&o); err != nil {
		d.hangUp()
		d.await() // it has the folder locked
		return nil, err
	}
	return d, nil
}

func newDB(log zerolog.Logger, p Process, pairs []net.Conn) *DB {
	d := &DB{process: p, reads: make(chan *conn, readers), ended: make(chan struct{}), log: log}
	d.batch.d = d
	for i, pair := range pairs {
		c := newConn(pair)
		d.conns = append(d.conns, c)
		if i == 0 {
			d.commits = c
		} else {
			d.reads <- c
		}
	}
	return d
}

// MemoryLimit is the GOMEMLIMIT of the process: memtables, the tables of a
// compaction, and as much again for everything else. It is a soft one.
func MemoryLimit(memTable int64) int64 { return 64<<20 + 8*memTable }

// runtimeSettings are those of the daemon's environment that the Go runtime
// reads to say more of its end: no secret of the daemon's goes along.
func runtimeSettings() (env []string) {
	for _, name := range []string{"GODEBUG", "GORACE", "GOTRACEBACK"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// start makes the pairs and the process.
func start(dir string, limit int64) (p *child, pairs []net.Conn, words io.Reader, err error) {
	cmd := exec.Command("/proc/self/exe") // what runs now, also when its file was replaced or removed
	cmd.Args = []string{processName, dir} // for ps
	cmd.Env = append(runtimeSettings(), fmt.Sprintf("GOMEMLIMIT=%d", limit))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it ends with this one
	defer func() {
		for _, f := range cmd.ExtraFiles {
			_ = f.Close() // the process has its own
		}
		if err != nil {
			hangUp(pairs)
		}
	}()
	for range Pairs {
		mine, its, err := pair()
		if err != nil {
			return nil, pairs, nil, err
		}
		pairs = append(pairs, mine)
		cmd.ExtraFiles = append(cmd.ExtraFiles, its)
	}
	if words, err = cmd.StderrPipe(); err != nil {
		return nil, pairs, nil, err
	}
	p = &child{cmd: cmd, ended: make(chan struct{})}
	started := make(chan error, 1)
	go p.attend(started)
	return p, pairs, words, <-started
}

// child is a process of its own.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// attend is with the process from its start to its end, on a thread of its own:
// the kernel takes the end of that thread for the end of the parent.
func (c *child) attend(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	started <- err
	if err == nil {
		<-c.ended
	}
}

// Pid implements Process.
func (c *child) Pid() int { return c.cmd.Process.Pid }

// Kill implements Process.
func (c *child) Kill() { _ = c.cmd.Process.Kill() } // it has ended already, else

// Wait implements Process.
func (c *child) Wait() string {
	defer close(c.ended)
	_ = c.cmd.Wait() // ProcessState says it better
	return c.cmd.ProcessState.String()
}

// end says what the process ended over.
func (d *DB) end(over *Death) {
	d.mu.Lock()
	d.mu.death = over
	d.mu.Unlock()
	close(d.ended)
}

// listen passes on what Badger logs, to the end, and returns the first of what
// the runtime says of it.
func (d *DB) listen(words io.Reader) string {
	var last strings.Builder
	in := bufio.NewReaderSize(words, 4<<10)
	for {
		line, err := in.ReadSlice('\n') // a longer one comes in pieces
		if level, text, ok := logged(string(line)); ok {
			d.log.WithLevel(level).Msg("badger: " + text)
		} else if n := min(len(line), wordsBytes-last.Len()); n > 0 {
			last.Write(line[:n])
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
	}
	text, _, _ := strings.Cut(last.String(), "\ngoroutine ") // what each was doing
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\t' }), "; ")
}

// Lines of Badger's begin with a byte that no others do, and one for the level.
const (
	logMark = "\x01"
	logWarn = "W"
	logInfo = "I" // detail here
)

func logged(line string) (level zerolog.Level, text string, ok bool) {
	text, ok = strings.CutPrefix(line, logMark)
	if !ok || text == "" {
		return 0, "", false
	}
	if level = zerolog.DebugLevel; strings.HasPrefix(text, logWarn) {
		level = zerolog.WarnLevel
	}
	return level, strings.TrimSpace(text[1:]), true
}

// Kill ends the process, and everything that waits for it with the error. One
// that hangs in the kernel ends when that lets go of it: see Ended.
func (d *DB) Kill(why error) {
	d.mu.Lock()
	d.mu.killed = cmp.Or(d.mu.killed, why)
	d.mu.Unlock()
	d.process.Kill()
	d.hangUp()
}

// hangUp closes the pairs, which ends the process.
func (d *DB) hangUp() { hangUp(d.conns) }

func hangUp[C io.Closer](pairs []C) {
	for _, c := range pairs {
		_ = c.Close()
	}
}

// await waits for the end of the process, unless it hangs in the kernel.
func (d *DB) await() {
	select {
	case <-d.ended:
	case <-time.After(endTimeout):
	}
}

// pair is two ends, one for the process.
func pair() (mine net.Conn, its *os.File, err error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	its = os.NewFile(uintptr(fds[1]), "pair")
	f := os.NewFile(uintptr(fds[0]), "pair")
	defer f.Close() //nolint:errcheck // the connection has its own
	if mine, err = net.FileConn(f); err != nil {
		_ = its.Close()
		return nil, nil, err
	}
	return mine, its, nil
}
