package daemon

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDeployedMetrics: the dashboard and the rules of deploy name metrics that there are,
// by their names in Prometheus.
func TestDeployedMetrics(t *testing.T) {
	known := map[string]bool{}
	for _, m := range allMetrics() {
		known["kvstored_"+m.name] = true
		if m.buckets != nil {
			for _, part := range []string{"_bucket", "_count", "_sum"} {
				known["kvstored_"+m.name+part] = true
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

// TestAlertsAreTested: a test of the rules has each alert fire; e2e/metrics runs it.
func TestAlertsAreTested(t *testing.T) {
	rules, err := os.ReadFile("../../deploy/prometheus/kvstored.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	fired, err := os.ReadFile("../../deploy/prometheus/kvstored.test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(rules), -1)
	if len(alerts) == 0 {
		t.Error("there is no alert")
	}
	for _, a := range alerts {
		if !strings.Contains(string(fired), `alertname="`+a[1]+`"`) {
			t.Errorf("no test has %s fire", a[1])
		}
	}
}
