package metrics_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/need"
	"github.com/kvstored/kvstored/key"
)

// promtool runs Prometheus' own tool in the checkout.
func promtool(t *testing.T, stdin []byte, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), need.Program(t, "promtool", "Debian's package prometheus"), args...)
	cmd.Dir, cmd.Stdin = daemon.Root(), bytes.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil || len(stdin) > 0 && len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestAlerts: each alert fires where it should and none where all is well.
func TestAlerts(t *testing.T) {
	for _, what := range []string{"deploy/prometheus/kvstored", "router/deploy/router"} {
		promtool(t, nil, "check", "rules", what+".rules.yaml")
		promtool(t, nil, "test", "rules", what+".test.yaml")
	}
}

// TestMetricsAreClean: Prometheus has nothing to say against the metrics of a daemon that
// has served some models.
func TestMetricsAreClean(t *testing.T) {
	d := daemon.Start(t, func(c *config.Config) { c.Admin.Listen = "127.0.0.1:0" })
	for i := range 3 {
		sp := key.Space{Model: fmt.Sprintf("model-%d", i), DType: "b", World: 1, ChunkTokens: 4, Method: key.SHA256}
		c := d.Dial(client.Options{Space: &sp})
		j, err := c.Prefetch(t.Context(), client.Tokens([]uint32{1, 2, 3, 4}), client.PrefetchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Put(t.Context(), client.Tokens([]uint32{1, 2, 3, 4}), 0, [][]byte{make([]byte, 100)}); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := http.Get("http://" + d.Find(`serving admin=(127\.0\.0\.1:\d+)`) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	if !strings.Contains(string(text), `kvstored_missed_tokens_total{reason="never_stored",tier="none"} 4`) {
		_, line, _ := strings.Cut(string(text), "kvstored_missed_tokens_total{")
		t.Errorf("the tokens that were missed are not in the metrics: %.300s", line)
	}
	promtool(t, text, "check", "metrics")
}
