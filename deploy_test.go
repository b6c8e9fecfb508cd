package kvstored_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The files that the image is built from are in it.
func TestDockerignore(t *testing.T) {
	text, err := os.ReadFile(".dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if _, err := os.Stat(line); err != nil || strings.ContainsAny(line, "*?!") {
			t.Errorf("%q is no path here: %v", line, err)
		}
		left = append(left, line)
	}
	needs := []string{"go.mod", "go.sum", "router/go.mod", "router/go.sum", "lab/go.mod", "lab/go.sum", ".git"}
	recipe, err := os.ReadFile("deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)cp ([\w. ]+) /out`).FindAllStringSubmatch(string(recipe), -1) {
		needs = append(needs, strings.Fields(m[1])...)
	}
	if len(needs) < 6 {
		t.Errorf("the recipe copies %q: the test does not understand it", needs)
	}
	needs = append(needs, builtFrom(t)...)
	for _, file := range needs {
		for _, path := range left {
			if under(file, path) {
				t.Errorf("%s is left out by %s", file, path)
			}
		}
	}
}

// builtFrom lists the files of ours that the programs are built from.
func builtFrom(t *testing.T) (files []string) {
	t.Helper()
	all := list(t)
	for _, program := range all {
		if !slices.Contains([]string{"cmd/kvstored", "router/cmd/kvstored-router", "lab/cmd/kvstored-lab"}, program.pkg) {
			continue
		}
		for _, p := range all {
			if p.pkg == program.pkg || slices.Contains(program.deps, module+"/"+p.pkg) {
				files = append(files, p.files...)
			}
		}
	}
	if len(files) < 100 {
		t.Fatalf("only %d files", len(files))
	}
	return files
}

// Daemon, service and monitor are about the same pods and the same port.
func TestKubernetesNames(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	pods, monitor := read("deploy/kubernetes/daemonset.yaml"), read("deploy/kubernetes/servicemonitor.yaml")
	const label = "app.kubernetes.io/name: kvstored}"
	for _, c := range []struct {
		text, part string
		times      int
	}{
		{pods, "matchLabels: {" + label, 1}, {pods, "labels: {" + label, 2}, {pods, "{name: metrics, containerPort: 9464}", 1}, {pods, "port: metrics}", 2},
		{monitor, "selector: {" + label, 1}, {monitor, "matchLabels: {" + label, 1}, {monitor, "labels: {" + label, 2},
		{monitor, "targetPort: metrics}", 1}, {monitor, "{port: metrics,", 1},
	} {
		if n := strings.Count(c.text, c.part); n != c.times {
			t.Errorf("%q is there %d times, want %d", c.part, n, c.times)
		}
	}
	for _, text := range []string{pods, monitor} {
		if strings.Contains(text, "\t") {
			t.Error("a tab: YAML has none")
		}
	}
}
