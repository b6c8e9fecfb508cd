package main

import (
	"strings"
	"testing"

	"github.com/kvstored/kvstored/config"
)

// check --running says the cost of each change, and changes nothing.
func TestAgainstRunning(t *testing.T) {
	var running config.Config
	serveHere(t, func(c *config.Config) {
		c.CPU.HugePages, c.CPU.Keep = config.HugePagesAuto, true
		running = *c
	})
	none := running
	none.Listen.Socket += ".none"
	if code, _, says := kvstored(t, "", "check", "--running", fileOf(t, &none)); code != exitUnreachable {
		t.Errorf("without a daemon: exit code %d: %s", code, says)
	}
	for name, c := range map[string]struct {
		change func(*config.Config)
		want   []string
		not    string
	}{
		"nothing": {func(*config.Config) {}, []string{"runs with this configuration"}, "->"},
		"a live key": {func(c *config.Config) { c.CPU.Policy = "lfu" },
			[]string{"cpu.policy: lru -> lfu: a reload applies it"}, "restart"},
		"a key that takes a restart": {func(c *config.Config) { c.Disk.Capacity = 2 << 30 },
			[]string{"disk.capacity: 0 -> 2GiB: takes a restart", "keeps DRAM where systemd or serve --keeper has it"}, "that restart empties"},
		"the arena's size": {func(c *config.Config) { c.CPU.Capacity *= 2 },
			[]string{"cpu.capacity: 16MiB -> 32MiB: takes a restart", "that restart empties DRAM, of 16MiB: cpu.capacity"}, "keeps DRAM"},
		"its pages": {func(c *config.Config) { c.CPU.HugePages = config.HugePagesOff },
			[]string{"keeps DRAM", "cpu.hugepages counts for new ones only"}, "that restart empties"},
		"not kept": {func(c *config.Config) { c.CPU.Keep = false }, []string{"that restart empties DRAM, of 16MiB: cpu.keep"}, "keeps DRAM"},
	} {
		t.Run(name, func(t *testing.T) {
			next := running
			c.change(&next)
			code, out, says := kvstored(t, "", "check", "--running", fileOf(t, &next))
			if code != exitOK {
				t.Fatalf("exit code %d: %s", code, says)
			}
			_, about, _ := strings.Cut(out, "# ")
			for _, want := range c.want {
				if !strings.Contains(about, want) {
					t.Errorf("it does not say %q: %s", want, about)
				}
			}
			if strings.Contains(about, c.not) {
				t.Errorf("it says %q: %s", c.not, about)
			}
		})
	}
}
