package database_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
)

// TestMetrics: the metrics have the database's process under names of its own.
func TestMetrics(t *testing.T) {
	d := daemon.Start(t, func(c *config.Config) { c.Admin.Listen = "127.0.0.1:0" })
	resp, err := http.Get("http://" + d.Find(`serving admin=(127\.0\.0\.1:\d+)`) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	number := func(name string) float64 {
		found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(page)
		if found == nil {
			t.Fatalf("there is no %s", name)
		}
		n, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	children := d.Children()
	if len(children) != 1 {
		t.Fatalf("the daemon has the processes %v", children)
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", children[0]))
	if err != nil || !strings.HasPrefix(string(name), "kvstored-database") {
		t.Errorf("its process is %q, %v", name, err)
	}
	if got, want := number("kvstored_database_process_start_time_seconds"), startOf(t, children[0]); got != want {
		t.Errorf("a process that began at %f, the database's at %f", got, want)
	}
	if n := number("kvstored_disk_database_written_bytes_total"); n == 0 {
		t.Error("it has written nothing")
	}
}

// startOf is when a process began, in seconds since 1970.
func startOf(t *testing.T, pid int) float64 {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // behind the name
	ticks, err := strconv.ParseFloat(strings.Fields(rest)[19], 64)
	if err != nil {
		t.Fatal(err)
	}
	machine, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	boot, err := strconv.ParseFloat(regexp.MustCompile(`(?m)^btime (\d+)$`).FindStringSubmatch(string(machine))[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return boot + ticks/100
}
