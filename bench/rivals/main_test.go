package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Wrong options are refused with what they are about; nothing is measured silently
// that was not asked for.
func TestWrongOptions(t *testing.T) {
	for args, says := range map[string]string{
		"-sizes 9MiB":            `-sizes: "9MiB": use sizes such as`,
		"-sizes 64KiB,":          `-sizes: "": use sizes such as`,
		"-sizes 0":               `-sizes: "0": use sizes such as`,
		"-sizes 5000":            `-sizes: "5000": use sizes such as`,
		"-sizes 16x64KiB":        `-sizes: "16x64KiB": use sizes such as`,
		"-batches 64KiB":         `-batches: "64KiB": use sizes such as`,
		"-batches 1x64KiB":       `-batches: "1x64KiB": use batches of two values or more`,
		"-batches -2x64KiB":      `-batches: "-2x64KiB": use batches of two values or more`,
		"-batches ax64KiB":       `-batches: "ax64KiB": use batches of two values or more`,
		"-batches 17x8MiB":       "at most 128MiB in all",
		"-batches 9999999999x64": "-batches:",
		"-rounds 0":              "-rounds: 0: use 1 or more",
		"-rounds x":              "invalid value",
		"-rivals etcd":           `-rivals: "etcd" is none of kvstored, memcached,`,
		"-rivals redis,":         `-rivals: "" is none of`,
		"-size 64KiB":            "flag provided but not defined",
		"-rounds 2 put":          `"put" is no option`,
	} {
		if _, err := parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want one that says %q", args, err, says)
		}
	}
}

func TestOptions(t *testing.T) {
	o, err := parse(nil)
	if err != nil || o.rounds != 5 || len(o.rivals) != len(rivals) || len(o.cells) != 1+5+4 {
		t.Errorf("%+v, %v", o, err)
	}
	o, err = parse([]string{"-rivals", "redis,memcached", "-sizes", "", "-batches", "16x64KiB"})
	var names []string
	for _, r := range o.rivals {
		names = append(names, r.name)
	}
	if err != nil || !slices.Equal(names, []string{ours, "memcached", "redis", echo}) || !slices.Equal(o.cells, []cell{{}, {64 << 10, 16, 32}}) {
		t.Errorf("%v, %+v, %v", names, o.cells, err)
	}
}

// A cell has enough calls for a median, and fits beside what the stores hold.
func TestCells(t *testing.T) {
	for _, c := range []struct{ count, size, calls int }{
		{1, 4 << 10, 256}, {1, 64 << 10, 256}, {1, 1 << 20, 32}, {1, 8 << 20, 16}, {16, 64 << 10, 32}, {16, 4 << 20, 4}, {16, 8 << 20, 4},
	} {
		if got := newCell(c.count, c.size); got != (cell{c.size, c.count, c.calls}) {
			t.Errorf("%d values of %d bytes: %+v, want %d calls", c.count, c.size, got, c.calls)
		}
	}
}

// The clients' own tests: a byte that is not what was put is found.
func TestClients(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("there is no python3")
		}
		t.Skip("there is no python3")
	}
	if out, err := exec.Command(python, "clients_test.py").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
