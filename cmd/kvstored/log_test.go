package main

import (
	"context"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/daemon"
)

// TestLog: the log begins with version and settings; at debug it has a line for each request,
// with what came of it and why, and for connections that come and go; where it is no terminal
// it has no codes of one.
func TestLog(t *testing.T) {
	cfg, log := smallConfig(t, func(c *config.Config) { c.Log.Level = "debug" }), newSaid()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, log, cfg, daemon.Options{}) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		daemon.SetLogLevel("info")
	})
	t.Setenv("KVSTORED_SOCKET", cfg.Listen.Socket)
	log.await(t, "INF serving ")
	must(t, kv(1, 1), prompt("put", 1, 1)...)
	must(t, "", prompt("lookup", 1, 3)...)
	must(t, "", prompt("get", 1, 1)...)
	must(t, "", prompt("lookup", 1, 1, "--promote")...)
	text := log.await(t,
		`INF starting .*settings=.*cpu\.capacity: 16MiB.* version=`,
		`DBG connected .*connection=\d+ .*mapped=`,
		`DBG lookup .*cpu=1 disk=0 found=1 missing=never_stored remote=0 space=[0-9a-f]{32} tier=none tokens=3 took=`,
		`DBG prefetch .*cpu=1 .*found=1 had=1 .*missing=nothing .*ready_after=.* space=[0-9a-f]{32} .*tokens=1`,
		`DBG request .*op=commit took=`,
		`DBG request .*op=warm took=`,
		`DBG disconnected after=`,
	)
	if strings.Contains(text, "\x1b") {
		t.Errorf("codes of a terminal are in the log: %q", text)
	}
}
