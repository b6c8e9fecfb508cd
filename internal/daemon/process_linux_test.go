package daemon

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

// The metrics have the database's process under names of its own, and none
// where there is no such process.
func TestDatabasePid(t *testing.T) {
	d := &Daemon{cfg: smallConfig(t), log: zerolog.Nop()}
	defer d.Close()
	m := &metrics{daemon: d}
	if pid, err := m.databasePid(); err == nil {
		t.Errorf("process %d without a disk tier", pid)
	}
	if err := d.makeDisk(&d.cfg, false, 0, d.log); err != nil {
		t.Fatal(err)
	}
	pid, err := m.databasePid()
	if err != nil {
		t.Fatal(err)
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !strings.HasPrefix(string(name), "kvstored-database") {
		t.Errorf("process %d is %q, %v", pid, name, err)
	}
	if n := d.disk.Stats().Counters["database_write_bytes"]; n == 0 {
		t.Error("it has written nothing")
	}
}
