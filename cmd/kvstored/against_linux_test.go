package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/config"
)

// check --against-running says the cost of each change, and changes nothing.
func TestAgainstRunning(t *testing.T) {
	d := handOverDaemon(t, 256<<20)
	running, err := config.Load(d.config, nil, config.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	none := running
	none.Listen.Socket = d.socket + ".none"
	printed := func(c config.Config) string {
		var text bytes.Buffer
		if err := c.Print(&text); err != nil {
			t.Fatal(err)
		}
		return write(t, text.String())
	}
	if code, _, says := kvstored(t, "", "check", "--against-running", printed(none)); code != exitUnreachable {
		t.Errorf("without a daemon: exit code %d: %s", code, says)
	}
	if _, err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*config.Config)
		want   []string
		not    string
	}{
		"nothing": {func(*config.Config) {}, []string{"runs with this configuration"}, "->"},
		"a live key": {func(c *config.Config) { c.CPU.Policy = "lfu" },
			[]string{"cpu.policy: lru -> lfu: a reload applies it"}, "restart"},
		"a key that takes a restart": {func(c *config.Config) { c.Disk.Capacity *= 2 },
			[]string{"disk.capacity: 256MiB -> 512MiB: takes a restart", "--take-over keeps DRAM", "where kvstored keep or systemd has it"}, "that restart empties"},
		"the arena's size": {func(c *config.Config) { c.CPU.Capacity *= 2 },
			[]string{"cpu.capacity: 512MiB -> 1GiB: takes a restart", "that restart empties DRAM, of 512MiB: cpu.capacity: 1GiB, and the daemon that runs has 512MiB"}, "keeps DRAM"},
		"its pages": {func(c *config.Config) { c.CPU.HugePages = config.HugePagesOff },
			[]string{"keeps DRAM", "cpu.hugepages counts for new ones only"}, "that restart empties"},
		"direct puts":  {func(c *config.Config) { c.Arena.Puts = config.PutsDirect }, []string{"that restart empties DRAM, of 512MiB: arena.puts"}, "keeps DRAM"},
		"no hand-over": {func(c *config.Config) { c.Upgrade.HandOver = false }, []string{"that restart empties DRAM, of 512MiB: upgrade.hand_over"}, "keeps DRAM"},
	} {
		t.Run(name, func(t *testing.T) {
			next := running
			c.change(&next)
			code, out, says := kvstored(t, "", "check", "--against-running", printed(next))
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
