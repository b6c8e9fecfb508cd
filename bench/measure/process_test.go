package measure_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/bench/measure"
)

// A server that ends before it answers says why, in its own words.
func TestServeEnded(t *testing.T) {
	var ps measure.Processes
	defer ps.Stop()
	err := ps.Serve(context.Background(), measure.Server{
		Command: []string{"sh", "-c", "echo starts; echo no room >&2; exit 3"}, At: filepath.Join(t.TempDir(), "never"),
	}, filepath.Join(t.TempDir(), "log"))
	if err == nil || !strings.HasSuffix(err.Error(), "has ended: no room") {
		t.Errorf("%v", err)
	}
	if err := ps.Serve(context.Background(), measure.Server{Command: []string{"/no/such/program"}}, filepath.Join(t.TempDir(), "log")); err == nil {
		t.Error("a program that is not there was started")
	}
}

// What a process has started ends with it.
func TestStop(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd := exec.Command("sh", "-c", "sleep 1000 & echo started; wait")
	cmd.Stdout = write
	var ps measure.Processes
	p, err := ps.Launch(cmd, nil, filepath.Join(t.TempDir(), "log"))
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(read)
	if line, err := out.ReadString('\n'); err != nil || line != "started\n" {
		t.Fatalf("%q, %v", line, err)
	}
	ps.Stop()
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 { // ends when the last that has it is gone
		t.Errorf("%q, %v", rest, err)
	}
	if err := p.Wait(context.Background()); err == nil {
		t.Error("a process that was ended has not failed")
	}
}
