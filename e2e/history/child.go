package history

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
)

// childVar, in the environment, makes a process of this program a client that
// stores until it is killed: socket, seed, first version, and whether chunks have ends.
const childVar = "HISTORY_CHILD"

// children starts clients to be killed, and records their writes.
type children struct {
	history *history
	socket  string
	seed    uint64
	aged    bool
	n       atomic.Int64
}

// one starts a client, and kills it after a while.
func (c *children) one(ctx context.Context, rng *rand.Rand) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	first := firstOf(1000 + int(c.n.Add(1)))
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d %t", childVar, c.socket, c.seed, first, c.aged))
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	kill := time.AfterFunc(100*time.Millisecond+time.Duration(rng.Int64N(int64(500*time.Millisecond))), func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	err = c.follow(out, in)
	_ = cmd.Wait() // killed
	return err
}

// follow takes down what a client writes, until it is gone.
func (c *children) follow(out io.Reader, in io.Writer) error {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var what, name string
		var v version
		var at moment
		var how outcome
		var age time.Duration
		if _, err := fmt.Sscan(lines.Text(), &what, &name, &v, &at, &how, &age); err != nil {
			return nil // cut short by the end of the process
		}
		raw, err := hex.DecodeString(name)
		if err != nil || len(raw) != len(key.Hash{}) {
			return fmt.Errorf("a client says %q", lines.Text())
		}
		if what == "ends" {
			_ = c.history.wrote(key.Hash(raw), v, at, how)
			continue
		}
		_ = c.history.writing(key.Hash(raw), v, at, age)
		if _, err := io.WriteString(in, "\n"); err != nil {
			return nil
		}
	}
	return nil
}

// pipeLog is the writeLog of a client process: nothing is sent to the daemon
// before the parent has taken it down.
type pipeLog struct{ in *bufio.Reader }

func (pipeLog) say(what string, k key.Hash, v version, at moment, how outcome, age time.Duration) error {
	_, err := fmt.Printf("%s %x %d %d %d %d\n", what, k, v, at, how, age)
	return err
}

func (p pipeLog) writing(k key.Hash, v version, begin moment, age time.Duration) error {
	if err := p.say("begins", k, v, begin, unknown, age); err != nil {
		return err
	}
	_, err := p.in.ReadByte()
	return err
}

func (p pipeLog) wrote(k key.Hash, v version, end moment, how outcome) error {
	return p.say("ends", k, v, end, how, 0)
}

// child is a client process: it stores, keeps leases and room it does not use,
// and is killed some time.
func child(ctx context.Context, job string) error {
	var socket string
	var seed uint64
	var first version
	var aged bool
	if _, err := fmt.Sscan(job, &socket, &seed, &first, &aged); err != nil {
		return err
	}
	c, err := client.Dial(ctx, socket, client.Options{Name: "child", Space: &space})
	if err != nil {
		return err
	}
	w := worker{
		writes: pipeLog{bufio.NewReader(os.Stdin)}, prompts: makePrompts(seed), next: first, aged: aged,
		rng: rand.New(rand.NewPCG(seed, uint64(first))), s: daemonStore{c: c},
	}
	for {
		p := w.prompts[w.rng.IntN(len(w.prompts))]
		switch w.rng.IntN(8) {
		case 0:
			_, err = w.s.Lease(ctx, p.Prompt)
		case 1:
			_, err = c.Reserve(ctx, p.Prompt, client.ReserveOptions{Size: 8 << 10})
		default:
			err = w.put(ctx, p)
		}
		if connection(err) != nil {
			return err
		}
	}
}
