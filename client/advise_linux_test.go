package client

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/wire"
)

// A client's mapping of its staging window is advised to have huge pages ("hg" in
// proc_pid_smaps(5)), and lies where they fit.
func TestWindowIsAdvisedHuge(t *testing.T) {
	const size = 2 * arena.HugeBytes
	f, err := arena.NewMemory("window", size)
	if err != nil {
		t.Fatal(err)
	}
	h := wire.HelloReply{Granted: wire.FeatureStaging, StagingBytes: size, Descriptors: 1, Puts: wire.PutStaged}
	var m mappings
	if err := m.open(&h, []*os.File{f}); err != nil {
		t.Fatal(err)
	}
	defer m.close()
	if flags := flagsOf(t, m.mu.staging); !slices.Contains(flags, "hg") {
		t.Errorf("the mapping has the flags %v", flags)
	}
	if at := uintptr(unsafe.Pointer(&m.mu.staging[0])); at%arena.HugeBytes != 0 {
		t.Errorf("the window is mapped at %#x, where no huge page fits", at)
	}
}

// flagsOf is what the kernel says of the mapping that begins with p.
func flagsOf(t *testing.T, p []byte) []string {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	begin, in := fmt.Sprintf("%x-", uintptr(unsafe.Pointer(&p[0]))), false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if in = in || strings.HasPrefix(line, begin); !in {
			continue
		}
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok {
			return strings.Fields(flags)
		}
	}
	t.Fatal("the kernel does not list the mapping")
	return nil
}
