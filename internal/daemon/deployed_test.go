package daemon

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
)

// TestDeployedMetrics: the dashboard and the rules of deploy name metrics that there are,
// by their names in Prometheus.
func TestDeployedMetrics(t *testing.T) {
	known := map[string]bool{}
	for _, m := range exported.List {
		known["kvstored_"+m.Name] = true
		if m.Buckets != nil {
			for _, part := range []string{"_bucket", "_count", "_sum"} {
				known["kvstored_"+m.Name+part] = true
			}
		}
	}
	name := regexp.MustCompile(`\bkvstored_[a-z0-9_]+`)
	for _, file := range []string{"grafana/kvstored.json", "prometheus/kvstored.rules.yaml", "prometheus/kvstored.test.yaml"} {
		text, err := os.ReadFile("../../deploy/" + file)
		if err != nil {
			t.Fatal(err)
		}
		found := name.FindAllString(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s names no metric", file)
		}
		for _, n := range found {
			if !known[n] {
				t.Errorf("%s names %s, which there is not", file, n)
			}
		}
	}
}

// promtool runs Prometheus' own tool, where it is installed.
func promtool(t *testing.T, stdin []byte, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal("promtool is not installed, and CI skips nothing")
	}
	if err != nil {
		t.Skip("promtool is not installed (Debian's package prometheus has it)")
	}
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdin = "../../deploy/prometheus", bytes.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil || len(stdin) > 0 && len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestAlerts: each alert fires where it should and none where all is well.
func TestAlerts(t *testing.T) {
	for _, what := range []string{"kvstored", "route"} {
		rules, err := os.ReadFile("../../deploy/prometheus/" + what + ".rules.yaml")
		if err != nil {
			t.Fatal(err)
		}
		fired, err := os.ReadFile("../../deploy/prometheus/" + what + ".test.yaml")
		if err != nil {
			t.Fatal(err)
		}
		alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(rules), -1)
		if len(alerts) == 0 {
			t.Errorf("%s has no alert", what)
		}
		for _, a := range alerts {
			if !strings.Contains(string(fired), `alertname="`+a[1]+`"`) {
				t.Errorf("no test has %s fire", a[1])
			}
		}
		promtool(t, nil, "check", "rules", what+".rules.yaml")
		promtool(t, nil, "test", "rules", what+".test.yaml")
	}
}

// TestMetricsAreClean: Prometheus has nothing to say against the metrics of a daemon that
// has served.
func TestMetricsAreClean(t *testing.T) {
	cfg := smallConfig(t)
	cfg.Admin.Listen = "127.0.0.1:0"
	d := serve(t, cfg)
	c, err := client.Dial(t.Context(), cfg.Listen.Socket, client.Options{Space: &key.Space{Model: "m", DType: "b", World: 1, ChunkTokens: 4, Method: key.SHA256}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	j, err := c.Prefetch(t.Context(), client.Tokens([]uint32{1, 2, 3, 4}), client.PrefetchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !page(t, d, "/metrics", http.StatusOK, `kvstored_missed_tokens_total{reason="never_stored",tier="none"} 4`) {
		t.Error("the tokens that were missed are not in the metrics")
	}
	_, text := fetchPage(t, d, "/metrics")
	promtool(t, []byte(text), "check", "metrics")
}
