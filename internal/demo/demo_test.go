package demo

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
	"github.com/kvstored/kvstored/internal/replay"
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
	p.cfg.Disk.Paths, p.cfg.Disk.Capacity, p.cfg.Disk.SegmentSize, p.cfg.Disk.MinFree = []string{dir}, 256<<20, 64<<20, 0
	return p
}

func (p *inProcess) Start(context.Context) (Found, error) {
	d, err := daemon.New(p.cfg, daemon.Options{Log: zerolog.Nop()})
	if err != nil {
		return Found{}, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop, p.ended = stop, make(chan error, 1)
	go func() { p.ended <- d.Run(ctx) }()
	return Found{Chunks: 7, Bytes: 8}, nil
}

func (p *inProcess) Stop(context.Context) error {
	p.stop()
	return errors.Join(p.bad, <-p.ended)
}

func (p *inProcess) Socket() string { return p.cfg.Listen.Socket }

// TestRun: every prompt is played and verified, half of them after a restart,
// the steps are told in order, and the sums are those of the halves.
func TestRun(t *testing.T) {
	var steps []string
	played := 0
	r, series, err := Run(t.Context(), Options{
		Chat: replay.Chat{Users: 3, Turns: 3, Seed: 1, SystemTokens: SystemTokens}, PrefillTokensPerSecond: 1000, Daemon: newInProcess(t),
		Step:   func(what string) { steps = append(steps, what) },
		Played: func(replay.Turn) { played++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	if played != 9 || series.Waited() <= 0 || r.Total.Requests != 9 || !r.Total.OK() || r.Total.TotalHitTokens != r.Before.TotalHitTokens+r.After.TotalHitTokens {
		t.Errorf("%d played, %+v", played, r.Total)
	}
	if r.After.TotalHitTokens == 0 || r.Restart.ChunksBack != 7 || r.Restart.BytesBack != 8 || r.Saved.PrefillSeconds != float64(r.Total.TotalHitTokens)/1000 {
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
	_, _, err := Run(t.Context(), Options{
		Chat: replay.Chat{Users: 1, Turns: 2, Seed: 1}, PrefillTokensPerSecond: 1, Daemon: p,
		Step: func(string) {}, Played: func(replay.Turn) {},
	})
	if !errors.Is(err, p.bad) {
		t.Errorf("error %v", err)
	}
}
