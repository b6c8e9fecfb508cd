package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/config"
)

// readmeSection is what the README says under a heading.
func readmeSection(t *testing.T, heading string) string {
	t.Helper()
	data, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(data), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("the README has no section %s", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// TestReadmeMetrics: what the README recommends to watch is exported.
func TestReadmeMetrics(t *testing.T) {
	exported := map[string]bool{}
	define := regexp.MustCompile(`(?:desc\(|Name: +)"(?:kvstored_)?([a-z_]+)"`)
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range sources {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range define.FindAllStringSubmatch(string(data), -1) {
			exported[m[1]] = true
		}
	}
	counters := diskCounters(t)

	name := regexp.MustCompile("`([a-z0-9_]+)(?:\\{[^`]*)?`")
	rows := 0
	for _, row := range strings.Split(readmeSection(t, "Watching it"), "\n") {
		cells := strings.Split(row, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		rows++
		for _, m := range name.FindAllStringSubmatch(cells[1], -1) {
			if !exported[m[1]] {
				t.Errorf("the README names the metric %s, which there is not", m[1])
			}
		}
		if !strings.Contains(cells[1], "tier_counter") {
			continue
		}
		for _, m := range name.FindAllStringSubmatch(cells[2], -1) {
			if _, ok := counters[m[1]]; !ok && !exported[m[1]] {
				t.Errorf("the README names the number %s of the disk tier, which there is not", m[1])
			}
		}
	}
	if rows == 0 {
		t.Error("the README has no table of metrics")
	}
}

// diskCounters are the numbers of a disk tier that has just been made.
func diskCounters(t *testing.T) map[string]uint64 {
	t.Helper()
	cfg, err := config.Load(daemonFolder(t).config, nil, config.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{cfg: cfg, log: zerolog.Nop()}
	defer d.close()
	if err := d.makeDisk(); err != nil {
		t.Fatal(err)
	}
	return d.disk.Stats().Counters
}

// TestReadmeCommands: the README's tables have every command, and no other.
func TestReadmeCommands(t *testing.T) {
	text := readmeSection(t, "First steps by hand") + readmeSection(t, "Administering it")
	root := rootCommand()
	for _, cmd := range root.Commands() {
		if name := cmd.Name(); name != "help" && name != "completion" && !regexp.MustCompile("\\| `(kvstored )?"+name+"\\b|, `"+name+"`").MatchString(text) {
			t.Errorf("the README's tables do not have the command %s", name)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(?:kvstored )?([a-z]+)\\b").FindAllStringSubmatch(text, -1) {
		if cmd, _, err := root.Find([]string{m[1]}); err != nil {
			t.Errorf("the README names the command %s: %v", m[1], err)
		} else if cmd.Short == "" {
			t.Errorf("%s does not say what it does", cmd.Name())
		}
	}
	eachCommand(root, func(cmd *cobra.Command) {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: %q is no line of a list of commands", cmd.CommandPath(), cmd.Short)
		}
	})
}

// TestReadmeTrace: the trace that the README plays is in the checkout.
func TestReadmeTrace(t *testing.T) {
	m := regexp.MustCompile(`(?m)^\./kvstored replay --trace (internal/.*\.jsonl) (--[^#]*[^# ])`).FindStringSubmatch(readmeSection(t, "Measuring it"))
	if m == nil {
		t.Fatal("the README has no trace to play")
	}
	t.Setenv("KVSTORED_SOCKET", startDaemon(t))
	args := append([]string{"replay", "--trace", filepath.Join("..", "..", m[1])}, strings.Fields(m[2])...)
	if out := must(t, "", args...); !strings.Contains(out, "every byte right") {
		t.Errorf("%v:\n%s", args, out)
	}
}

func eachCommand(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, sub := range cmd.Commands() {
		eachCommand(sub, f)
	}
}
