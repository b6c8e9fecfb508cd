package daemon

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/internal/test/logtest"
	"github.com/kvstored/kvstored/key"
)

// TestDistrustSurvives: a space that is distrusted is so after a restart; statistics and
// health say it, and an administrator ends it, for good. A garbled file is logged.
func TestDistrustSurvives(t *testing.T) {
	cfg := smallConfig(t)
	file := filepath.Join(cfg.Disk.Paths[0], stale.DistrustFile)
	space := key.Space{Model: "m", World: 1, DType: "bf16", ChunkTokens: 16, Method: key.Given}
	prompt := client.Hashes(16, []byte{1, 15: 1}, []uint32{16})
	// restart runs a daemon for as long as do takes, and returns its log.
	restart := func(do func(d *Daemon, c *client.Client)) string {
		t.Helper()
		var log logtest.Book
		d, err := New(cfg, optionsOf(zerolog.New(&log)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		untilReady(t, d)
		c, err := client.Dial(t.Context(), cfg.Listen.Socket, client.Options{Inline: true, Space: &space})
		if err != nil {
			t.Fatal(err)
		}
		do(d, c)
		c.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return log.String()
	}
	found := func(c *client.Client, want uint32) {
		t.Helper()
		if m, err := c.Lookup(t.Context(), prompt, 0); err != nil || m.Total.Chunks != want {
			t.Errorf("%d chunks are found, %v; want %d", m.Total.Chunks, err, want)
		}
	}
	id, err := space.ID()
	if err != nil {
		t.Fatal(err)
	}
	restart(func(d *Daemon, c *client.Client) {
		if _, err := c.Put(t.Context(), prompt, 0, [][]byte{make([]byte, 10_000)}); err != nil {
			t.Fatal(err)
		}
		found(c, 1)
		if list := d.troubles(); list != nil {
			t.Fatal(list)
		}
		if err := c.Distrust(t.Context(), space); err != nil {
			t.Fatal(err)
		}
		found(c, 0)
	})
	restart(func(d *Daemon, c *client.Client) {
		found(c, 0)
		if st := d.stats(); st.Store.Distrusted != 1 || !strings.HasPrefix(st.Health, "degraded: distrusted spaces") {
			t.Errorf("%d are distrusted, %s", st.Store.Distrusted, st.Health)
		}
		hc := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", cfg.AdminSocket())
		}}}
		defer hc.CloseIdleConnections()
		text, err := json.Marshal(admin.ForgetRequest{Space: hex.EncodeToString(id[:]), Distrust: true})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := hc.Post("http://kvstored/v1/forget", "application/json", strings.NewReader(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Error(resp.Status)
		}
		found(c, 1)
	})
	restart(func(d *Daemon, c *client.Client) { found(c, 1) })
	if err := os.WriteFile(file, []byte("garbled"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := restart(func(d *Daemon, c *client.Client) { found(c, 1) })
	if !strings.Contains(log, "not all distrusted spaces are known") || !strings.Contains(log, `the line \"garbled\"`) {
		t.Errorf("%s", log)
	}
}
