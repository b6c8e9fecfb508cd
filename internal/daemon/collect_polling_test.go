package daemon

import (
	"maps"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvstored/kvstored/internal/spin"
)

// Each number of the polling has a series of its own.
func TestPollingSeries(t *testing.T) {
	for off, is := range map[bool]float64{false: 0, true: 1} {
		got := map[string]float64{}
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			got[strings.Join(append([]string{nameOf(t, d)}, labels...), " ")] = v
		}
		counter := func(d *prometheus.Desc, v uint64, labels ...string) { gauge(d, float64(v), labels...) }
		collectPolling(&spin.Stats{Polls: 6, Gained: 1, Vain: 2, Cut: 3, Lost: 4, Shared: 5, Pressed: 6, Off: off}, gauge, counter)
		want := map[string]float64{
			"kvstored_socket_polls_total gained": 1, "kvstored_socket_polls_total vain": 2, "kvstored_socket_polls_total cut": 3,
			"kvstored_socket_polling_off_total lost": 4, "kvstored_socket_polling_off_total others": 5, "kvstored_socket_polling_off_total pressure": 6,
			"kvstored_socket_polling_off": is,
		}
		if !maps.Equal(got, want) {
			t.Errorf("off %t: %v, want %v", off, got, want)
		}
	}
}

// nameOf is the name that a description has.
func nameOf(t *testing.T, d *prometheus.Desc) string {
	t.Helper()
	_, rest, _ := strings.Cut(d.String(), `fqName: "`)
	name, _, ok := strings.Cut(rest, `"`)
	if !ok {
		t.Fatalf("a description without a name: %s", d)
	}
	return name
}
