package commands_test

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/need"
)

// played is what of a replay's result tests look at.
type played struct {
	Requests     int              `json:"requests"`
	PromptTokens int64            `json:"total_prompt_tokens"`
	HitTokens    int64            `json:"total_hit_tokens"`
	ByTier       map[string]int64 `json:"hit_tokens"`
	Stored       int64            `json:"stored_blocks"`
	Written      int64            `json:"bytes_written"`
	Mismatches   int64            `json:"mismatches"`
	Complete     bool             `json:"complete"`
	Agrees       bool             `json:"daemon_agrees"`
	PerRequest   []int64          `json:"per_request"`
	Needed       int64            `json:"needed_bytes"`
	NeededBelow  int64            `json:"needed_below_bytes"`
	Daemon       struct {
		Loaded int64 `json:"loaded_bytes"`
	} `json:"daemon"`
}

// TestDemo plays a small demo, restart and all.
func TestDemo(t *testing.T) {
	work, err := os.MkdirTemp("", "kvstored-e2e-") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(work)
	r := daemon.MustJSON[struct {
		Total   played `json:"total"`
		Before  played `json:"before_restart"`
		After   played `json:"after_restart"`
		Restart struct {
			Back int64 `json:"chunks_back"`
		} `json:"restart"`
	}](t, "demo", "--users", "6", "--turns", "4", "--dir", work)
	if r.Total.Requests != 24 || r.Total.Mismatches != 0 || r.Total.HitTokens != r.Before.HitTokens+r.After.HitTokens {
		t.Errorf("total %+v", r.Total)
	}
	if r.Restart.Back == 0 || r.Restart.Back != r.Before.Stored || r.After.ByTier["disk"] == 0 {
		t.Errorf("%d of %d chunks back, %d tokens hit on disk after the restart", r.Restart.Back, r.Before.Stored, r.After.ByTier["disk"])
	}
	if left, err := os.ReadDir(work); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestDemoOnFullDisk: a demo without room for its disk tier says so first, and fails.
func TestDemoOnFullDisk(t *testing.T) {
	need.Root(t)
	work, err := os.MkdirTemp("", "kvstored-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(work)
	if err := syscall.Mount("none", work, "tmpfs", 0, "size=24m"); err != nil {
		need.Missing(t, "mount: %v", err)
	}
	defer func() { _ = syscall.Unmount(work, 0) }() // or the folder stays
	code, out, errs := daemon.Run(t, "", "demo", "--users", "8", "--turns", "3", "--dir", work)
	if code != daemon.ExitFailure || !strings.Contains(out, "\ndegraded: the disk tier has no room") || !strings.Contains(errs, "--dir") {
		t.Errorf("exit code %d, %s\n%s", code, out, errs)
	}
}
