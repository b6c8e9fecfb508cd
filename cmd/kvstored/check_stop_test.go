package main

import (
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/config"
)

// TestCheckStop: the seconds are printed where chunks may be in DRAM alone, and nothing
// is printed where there is no disk, or mode through.
func TestCheckStop(t *testing.T) {
	for _, tt := range []struct {
		mode, flush string
		says        string
		warns       string
	}{
		{"auto", "1h", "# stop: write.mode auto leaves up to 64 MiB in DRAM only; at ", ""},
		{"auto", "0s", "# stop: write.mode auto leaves up to ", "stop.flush is 0 ms, but to write"},
		{"through", "0s", "", ""},
	} {
		dir := t.TempDir()
		file := write(t, "listen: {socket: "+dir+"/s}\ncpu: {capacity: 64MiB}\ndisk: {paths: ["+dir+"], capacity: 1GiB, min_free: 0}\nwrite: {mode: "+tt.mode+"}\nadmin: {listen: ''}\nstop: {flush: "+tt.flush+"}\n")
		code, out, errs := kvstored(t, "", "check", file)
		if code != exitOK || strings.Contains(out, "# stop:") != (tt.says != "") || !strings.Contains(out, tt.says) {
			t.Errorf("%s: exit code %d, %s%s", tt.mode, code, out[max(0, len(out)-600):], errs)
		}
		if strings.Contains(errs, "stop.flush") != (tt.warns != "") || !strings.Contains(errs, tt.warns) {
			t.Errorf("%s: warnings %q, want %q", tt.mode, errs, tt.warns)
		}
		if code, out, _ := kvstored(t, "", "check", "--file-only", file); code != exitOK || strings.Contains(out, "# stop:") {
			t.Errorf("%s: another machine's disk is measured: %s", tt.mode, out)
		}
	}
}

// TestStopWarnings: of a stop that is too short to write DRAM, and of a unit that does
// not wait for it.
func TestStopWarnings(t *testing.T) {
	c := config.Default()
	c.Stop.Flush = time.Minute
	for _, tt := range []struct {
		takes, unit time.Duration
		known       bool
		want        int
	}{
		{time.Second, 0, false, 0},
		{time.Second, 90 * time.Second, true, 0},
		{time.Second, 0, true, 0}, // for ever
		{time.Second, 64 * time.Second, true, 1},
		{2 * time.Minute, 0, false, 1},
		{2 * time.Minute, 10 * time.Second, true, 2},
	} {
		if got := stopWarnings(&c, tt.takes, tt.unit, "kvstored.service", tt.known); len(got) != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}
