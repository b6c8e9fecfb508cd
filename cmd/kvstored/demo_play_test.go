package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/daemon"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/key"
)

// TestMain lets the disk tier start the process of its database, which is the
// test's own program.
func TestMain(m *testing.M) {
	database.Main()
	os.Exit(m.Run())
}

// inProcess is a daemon in the test's process.
type inProcess struct {
	cfg   config.Config
	stop  context.CancelFunc
	ended chan error
	bad   error // of Stop
}

func newInProcess(t *testing.T) *inProcess {
	dir, err := os.MkdirTemp("", "kvstored-test-") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &inProcess{cfg: config.Default()}
	p.cfg.Listen.Socket, p.cfg.Admin.Listen = filepath.Join(dir, "s"), ""
	p.cfg.CPU.Capacity, p.cfg.CPU.HugePages = 64<<20, config.HugePagesOff
	p.cfg.Disk.Paths, p.cfg.Disk.Capacity, p.cfg.Disk.MinFree = []string{dir}, 256<<20, 0
	return p
}

func (p *inProcess) start(context.Context) (chunks, bytes int64, err error) {
	d, err := daemon.New(p.cfg, daemon.Options{Log: zerolog.Nop()})
	if err != nil {
		return 0, 0, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop, p.ended = stop, make(chan error, 1)
	go func() { p.ended <- d.Run(ctx) }()
	return 7, 8, nil
}

func (p *inProcess) halt(context.Context) error {
	p.stop()
	return errors.Join(p.bad, <-p.ended)
}

func (p *inProcess) options(users, turns int) demoOptions {
	return demoOptions{
		Users: users, Turns: turns, Seed: 1, PrefillTokensPerSecond: 1000, Socket: p.cfg.Listen.Socket,
		Start: p.start, Stop: p.halt, Step: func(string) {}, Played: func(demoTurn) {},
	}
}

// TestRun: every prompt is played and verified, half of them after a restart,
// the steps are told in order, and the sums are those of the halves.
func TestRun(t *testing.T) {
	var steps []string
	played := 0
	o := newInProcess(t).options(3, 3)
	o.Step = func(what string) { steps = append(steps, what) }
	o.Played = func(demoTurn) { played++ }
	r, err := playDemo(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if played != 9 || r.Saved.WaitedSeconds <= 0 || r.Total.Requests != 9 || r.Total.Wrong != 0 || r.Total.HitTokens != r.Before.HitTokens+r.After.HitTokens {
		t.Errorf("%d played, %+v", played, r.Total)
	}
	if r.After.HitTokens == 0 || r.Restart.ChunksBack != 7 || r.Restart.BytesBack != 8 || r.Saved.PrefillSeconds != float64(r.Total.HitTokens)/1000 {
		t.Errorf("restart %+v, saved %+v, after it %+v", r.Restart, r.Saved, r.After)
	}
	const stopping = "stopping the daemon, which writes what is unwritten"
	if want := []string{"starting a daemon", "playing the first half", stopping, "starting it again, from disk alone", "playing the second half", stopping}; !slices.Equal(steps, want) {
		t.Errorf("steps %q", steps)
	}
}

// TestRunFails: a daemon that does not stop ends the demo with its error.
func TestRunFails(t *testing.T) {
	p := newInProcess(t)
	p.bad = errors.New("it does not")
	_, err := playDemo(t.Context(), p.options(1, 2))
	if !errors.Is(err, p.bad) {
		t.Errorf("error %v", err)
	}
}

// TestRunEnds: a demo of a million people ends with its context.
func TestRunEnds(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	p, played := newInProcess(t), 0
	o := p.options(mostUsers, 10)
	o.Played = func(demoTurn) {
		if played++; played == 3 {
			stop()
		}
	}
	_, err := playDemo(ctx, o)
	if !errors.Is(err, context.Canceled) || played != 3 {
		t.Errorf("%d played, error %v", played, err)
	}
	if err := p.halt(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestPayloads: a payload follows from all of its key.
func TestPayloads(t *testing.T) {
	make1 := func(k key.Key) []byte {
		p := make([]byte, 100)
		fill(p, k)
		return p
	}
	one := make1(key.Key{Space: key.SpaceID{15: 1}, Hash: key.Hash{15: 1}})
	for _, other := range []key.Key{{Space: key.SpaceID{15: 2}, Hash: key.Hash{15: 1}}, {Space: key.SpaceID{15: 1}, Hash: key.Hash{15: 2}}} {
		if slices.Equal(one, make1(other)) {
			t.Errorf("the payload of %v is another's", other)
		}
	}
	if !slices.Equal(one, make1(key.Key{Space: key.SpaceID{15: 1}, Hash: key.Hash{15: 1}})) {
		t.Error("a payload is another the second time")
	}
}
