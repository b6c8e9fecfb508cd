package main

import "testing"

// TestScrubRebuildIsRefused: each wrong way to ask for a rebuild is told so, and
// costs nothing.
func TestScrubRebuildIsRefused(t *testing.T) {
	d := serveHere(t)
	must(t, kv(1, 2), prompt("put", 1, 2)...)
	fails(t, exitFailure, "there is no disk tier", "scrub", "--rebuild")
	fails(t, exitUsage, "--rate", "scrub", "--rebuild", "--rate", "1GiB")
	fails(t, exitUsage, "", "scrub", "--rebuild", "disk")
	fails(t, exitUsage, "", "scrub", "--rebuild=perhaps")
	fails(t, exitUnreachable, "", "scrub", "--rebuild", "--socket", d.socket+".not")
	if got := must(t, "", prompt("get", 1, 2)...); got != kv(1, 2) {
		t.Errorf("%d bytes are left", len(got))
	}
}
