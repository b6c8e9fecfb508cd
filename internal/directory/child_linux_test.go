package directory

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/pages"
)

// childVar makes the test binary a reader in a process of its own. Descriptor 3 is the
// directory, 4 the arena.
const childVar = "KVSTORED_DIRECTORY_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) != "" {
		if err := playReader(); err != nil {
			fmt.Fprintln(os.Stderr, "reader:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func playReader() error {
	mem, err := pages.Map(os.NewFile(3, "directory"), Bytes(stressArena), false)
	if err != nil {
		return err
	}
	r, err := Open(mem)
	if err != nil {
		return err
	}
	s := new(stressed)
	if s.mem, err = pages.Map(os.NewFile(4, "arena"), stressArena, false); err != nil {
		return err
	}
	return s.readMany(r, uint64(os.Getpid()), 50_000, func() bool { return false })
}

// Processes that can only read the memory see the same as the goroutines of another test.
func TestReadersInOtherProcesses(t *testing.T) {
	mem, file, err := arena.NewReadOnly("directory", Bytes(stressArena))
	if err != nil {
		t.Fatal(err)
	}
	defer arena.CloseReadOnly(mem, file)
	payloads, payloadFile, err := arena.NewReadOnly("arena", stressArena)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.CloseReadOnly(payloads, payloadFile)
	if m, err := pages.Map(file, Bytes(stressArena), true); err == nil {
		t.Error("a client can map the directory to write", pages.Unmap(m))
	}
	d, err := New(mem, stressArena)
	if err != nil {
		t.Fatal(err)
	}
	s := &stressed{payloads}
	var done atomic.Bool
	var writers, readers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() { s.write(d, w, 2, done.Load) })
	}
	for range 2 {
		readers.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), childVar+"=1")
			cmd.ExtraFiles = []*os.File{file, payloadFile}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	readers.Wait()
	done.Store(true)
	writers.Wait()
}
