package daemon

import (
	"encoding/json"
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

// TestDashboardForm: Grafana's dashboard has the fields that its schema wants, and its
// panels lie beside each other.
func TestDashboardForm(t *testing.T) {
	text, err := os.ReadFile("../../deploy/grafana/kvstored.json")
	if err != nil {
		t.Fatal(err)
	}
	type place struct{ X, Y, W, H int }
	var d struct {
		UID, Title    string
		SchemaVersion int
		Annotations   struct{ List *[]any }
		Panels        []struct {
			ID          int
			Type, Title string
			GridPos     place
			Panels      *[]any // of a row that is folded
			Datasource  struct{ Type, UID string }
			Targets     []struct{ Expr, RefID string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || d.Title == "" || d.SchemaVersion == 0 || d.Annotations.List == nil || len(d.Panels) == 0 {
		t.Errorf("its head lacks something: %.200s", text)
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if p.ID == 0 || ids[p.ID] || p.Title == "" || p.GridPos.W < 1 || p.GridPos.H < 1 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d, %q: its number, title or place is wrong: %+v", p.ID, p.Title, p.GridPos)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, ok := taken[at]; ok {
					t.Fatalf("%q lies upon %q", p.Title, other)
				}
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			if p.Panels == nil {
				t.Errorf("row %q has no list of panels", p.Title)
			}
			continue
		}
		if p.Datasource.Type != "prometheus" || p.Datasource.UID != "${source}" || len(p.Targets) == 0 {
			t.Errorf("panel %q asks nothing of the source: %+v", p.Title, p.Datasource)
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if q.Expr == "" || q.RefID == "" || refs[q.RefID] {
				t.Errorf("panel %q asks %+v", p.Title, q)
			}
			refs[q.RefID] = true
		}
	}
}
