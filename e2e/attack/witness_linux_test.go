package attack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/key"
)

// witness is a client that behaves, of another user than the attackers where that can be.
// It stores and reads a few prompts again and again, and compares every byte.
type witness struct {
	p      *prey
	chains []*key.Chain
	buf    []byte
	rounds int // without an error
	errs   int
	err    error // the last one
}

const (
	witnessChains = 6
	witnessChunks = 8
	witnessUID    = 20001
)

// asWitness connects as the witness's user. The thread is root's again behind it.
func asWitness(connect func() error) error {
	if os.Getuid() != 0 {
		return connect()
	}
	const keep = ^uintptr(0)
	become := func(uid uintptr) error {
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, uid, keep); errno != 0 {
			return fmt.Errorf("become user %d: %w", uid, errno)
		}
		return nil
	}
	runtime.LockOSThread()
	err := become(witnessUID)
	if err == nil {
		err = connect()
	}
	if back := become(0); back != nil {
		return errors.Join(err, back) // the thread stays this goroutine's
	}
	runtime.UnlockOSThread()
	return err
}

func newWitness(t *testing.T, p *prey) *witness {
	w := &witness{p: p, buf: make([]byte, load.MaxSize)}
	for number := range uint64(witnessChains) {
		w.chains = append(w.chains, load.Chain(t, load.Space, number, witnessChunks))
	}
	return w
}

// run works until ctx ends, and then ends the round that it is in, which may be the first.
func (w *witness) run(ctx context.Context) {
	for first := true; first || ctx.Err() == nil; first = false {
		if err := w.round(context.WithoutCancel(ctx)); err == nil {
			w.rounds++
		} else {
			w.errs, w.err = w.errs+1, err
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// round stores and reads every prompt once, on a connection of its own.
func (w *witness) round(ctx context.Context) (err error) {
	ctx, over := context.WithTimeout(ctx, patience)
	defer over()
	var c *client.Client
	err = asWitness(func() (err error) {
		c, err = client.Dial(ctx, w.p.d.Socket, client.Options{Name: "witness", Space: &load.Space})
		return err
	})
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer c.Close()
	for number, chain := range w.chains {
		if err := errors.Join(load.Put(ctx, c, chain), w.read(ctx, c, number)); err != nil {
			return err
		}
	}
	return w.redis(ctx)
}

// redis stores and reads one value through the Redis front end.
func (w *witness) redis(ctx context.Context) error {
	var conn net.Conn
	err := asWitness(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "unix", w.p.resp)
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	name, value := fmt.Sprintf("witness%p", w), strings.Repeat(fmt.Sprintf("%08d", w.rounds), 4<<10)
	if _, err := conn.Write(append(respCommand("SET", name, value), respCommand("GET", name)...)); err != nil {
		return err
	}
	in := bufio.NewReader(conn)
	if says, err := in.ReadString('\n'); err != nil || says != "+OK\r\n" {
		return fmt.Errorf("set: %q, %w", says, err)
	}
	length, err := in.ReadString('\n')
	if err != nil || length == "$-1\r\n" { // there was no room to keep it
		return err
	}
	got := make([]byte, len(value))
	if _, err := io.ReadFull(in, got); err != nil {
		return err
	}
	if string(got) != value {
		w.p.t.Errorf("Redis: wrong bytes behind %q", length)
	}
	return nil
}

func (w *witness) read(ctx context.Context, c *client.Client, number int) error {
	chain := w.chains[number]
	job, err := c.Prefetch(ctx, client.Chain(chain), client.PrefetchOptions{Policy: client.WaitComplete})
	if err != nil {
		return err
	}
	st, err := job.Wait(ctx, client.All)
	if err != nil {
		return err
	}
	for i := range int(st.Ready.Chunks) {
		n, err := job.Copy(ctx, w.buf, i)
		if err != nil {
			return err
		}
		if k := chain.Key(i); n != int(load.Size(k)) || !load.Right(k, w.buf[:n]) {
			if job.Release(ctx) == nil { // else the lease did not hold
				w.p.t.Errorf("prompt %d, chunk %d: wrong bytes", number, i)
			}
			return errors.New("wrong bytes")
		}
	}
	return job.Release(ctx)
}
