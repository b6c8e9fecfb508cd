package daemon_test

import (
	"context"
	"testing"
	"time"

	"github.com/kvstored/kvstored/e2e/daemon"
)

// TestProcess: a paused daemon does not answer until it goes on; it has one process for
// its database, and a second daemon of its folder does not start.
func TestProcess(t *testing.T) {
	d := daemon.Start(t)
	goOn := d.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := d.Ask(ctx); err == nil {
		t.Error("it answers while it is paused")
	}
	goOn()
	d.Flush()
	if pids := d.Children(); len(pids) != 1 || d.AnonymousBytes() == 0 {
		t.Errorf("processes %v, %d bytes of anonymous memory", pids, d.AnonymousBytes())
	}
	if daemon.Raced(t) {
		t.Log("the program has the race detector in it")
	}
	other := d.Beside()
	other.Launch()
	if err := other.Wait(); err == nil {
		t.Error("two daemons serve from one folder")
	}
	d.AwaitSaid("another process is serving this socket")
	if err := d.StopWithin(time.Minute); err != nil {
		t.Error(err)
	}
}
