package trouble

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
)

// A daemon whose disk cannot be used at the start, and goes away later, serves
// from DRAM, says why where one would look, and uses the disk as soon as it can:
// the flushed chunks are there again.
func TestDiskInTrouble(t *testing.T) {
	t.Parallel()
	mount := t.TempDir()
	if err := unix.Mount("tmpfs", mount, "tmpfs", unix.MS_RDONLY, "size=512M"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
	folder := filepath.Join(mount, "disk")
	d := daemon.Folder(t, func(c *config.Config) {
		c.Admin.Listen = "127.0.0.1:0"
		c.Disk.Paths, c.Disk.Capacity = []string{folder}, 256<<20
	})

	code, _, says := daemon.Run(t, "", "check", d.Config)
	if code != daemon.ExitFailure || !strings.Contains(says, "read-only") || !strings.Contains(says, "without the disk tier") {
		t.Errorf("check: exit code %d: %s", code, says)
	}
	d.Start()
	addr := d.Find(`serving admin=(127\.0\.0\.1:\d+)`)
	c, err := client.Dial(t.Context(), d.Socket, client.Options{Name: "trouble", Space: &load.Space})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := &eioRun{d: d, conn: c, s: load.NewBook(), hot: load.Chain(t, load.Space, 1<<40, 4)}
	if err := load.Put(t.Context(), c, r.hot); err != nil {
		t.Fatal(err)
	}
	r.readHot(t)
	readyz(t, addr, "ready\ndegraded: the disk tier is off: ", "read-only file system", "mount its file system writable")

	if err := unix.Mount("tmpfs", mount, "tmpfs", unix.MS_REMOUNT, "size=512M"); err != nil {
		t.Fatal(err)
	}
	r.awaitWorks(t)
	readyz(t, addr, "ready\n")
	r.keepPromise(t)

	if err := os.Rename(folder, folder+".away"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !strings.Contains(ready(t, addr), "mounted"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody notices that the folder has gone")
		}
	}
	r.readHot(t)
	if err := os.Rename(folder+".away", folder); err != nil {
		t.Fatal(err)
	}
	r.awaitWorks(t)
	r.keepPromise(t) // reads what was flushed before
	d.Stop()
	d.Start()
	if r.conn, err = client.Dial(t.Context(), d.Socket, client.Options{Name: "trouble", Space: &load.Space}); err != nil {
		t.Fatal(err)
	}
	defer r.conn.Close()
	r.readAll(t, r.kept, client.WaitComplete)
}

// ready is what /readyz says.
func ready(t *testing.T, addr string) string {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("/readyz: %s, %v", resp.Status, err)
	}
	return string(text)
}

func readyz(t *testing.T, addr string, parts ...string) {
	t.Helper()
	text := ready(t, addr)
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("/readyz does not say %q: %s", part, text)
		}
	}
	if len(parts) == 1 && text != parts[0] {
		t.Errorf("/readyz says %q", text)
	}
}
