package route

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Each code of an error is on the page, and the page has no other.
func TestCodesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, found := strings.Cut(string(text), "\n## Errors\n")
	part, _, _ = strings.Cut(part, "\n## ")
	if !found {
		t.Fatal("the page has no errors")
	}
	said := make(map[string]bool)
	for _, m := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(part, -1) {
		for _, code := range strings.Split(m[1], ", ") {
			said[strings.Trim(code, "`")] = true
		}
	}
	known := map[string]bool{"internal": true}
	for _, c := range codes {
		known[c.code] = true
		if !said[c.code] {
			t.Errorf("%s is not there", c.code)
		}
	}
	for code := range said {
		if !known[code] {
			t.Errorf("%s is no code", code)
		}
	}
}

// The alerts of deploy name metrics that there are.
func TestDeployedMetrics(t *testing.T) {
	r := newRig(t, nil)
	if err := r.s.Register(Worker{ID: "a", Model: "m", Events: Post}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.s.Query(&Question{Prompt: Prompt{Model: "m", Tokens: []uint32{1}}}); err != nil {
		t.Fatal(err)
	}
	r.want("ok", "/v1/query", `{"model": "m", "tokens": [1]}`)
	all, err := r.s.counts.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	exported := make(map[string]bool)
	for _, m := range all {
		exported[m.GetName()] = true
	}
	for _, file := range []string{"router.rules.yaml", "router.test.yaml"} {
		text, err := os.ReadFile("../deploy/" + file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`\bkvstored_route_[a-z0-9_]+`).FindAllString(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s names no metric", file)
		}
		for _, name := range found {
			if !exported[name] {
				t.Errorf("%s names %s, which there is not", file, name)
			}
		}
	}
}

// TestAlertsAreTested: a test of the rules has each alert fire; e2e/metrics runs it.
func TestAlertsAreTested(t *testing.T) {
	rules, err := os.ReadFile("../deploy/router.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	fired, err := os.ReadFile("../deploy/router.test.yaml")
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
