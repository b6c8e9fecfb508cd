package reach

import (
	"errors"
	"strings"
	"testing"
)

func TestAllow(t *testing.T) {
	a, err := Parse([]string{"127.0.0.0/8", "::1", "10.1.2.3", "*.workers.internal", "Node?", "/run/kvstored/*"})
	if err != nil {
		t.Fatal(err)
	}
	for endpoint, want := range map[string]error{
		"tcp://127.0.0.1:5557":            nil,
		"tcp://127.9.9.9:1":               nil,
		"tcp://[::1]:5557":                nil,
		"tcp://[::ffff:127.0.0.1]:5557":   nil,
		"tcp://10.1.2.3:5557":             nil,
		"tcp://a.workers.internal:5557":   nil,
		"tcp://A.Workers.Internal.:5557":  nil,
		"tcp://node7:1":                   nil,
		"ipc:///run/kvstored/pub":         nil,
		"/run/kvstored/a/kvstored.sock":   nil,
		"tcp://10.1.2.4:5557":             ErrNotAllowed,
		"tcp://[fe80::1%eth0]:1":          ErrNotAllowed,
		"tcp://workers.internal:1":        ErrNotAllowed,
		"tcp://a.workers.internal.evil:1": ErrNotAllowed,
		"tcp://127.0.0.1.evil:1":          ErrNotAllowed,
		"tcp://2130706433:1":              ErrNotAllowed,
		"ipc:///run/docker.sock":          ErrNotAllowed,
		"/run/docker.sock":                ErrNotAllowed,
		"/run/kvstored/../docker.sock":    ErrEndpoint,
		"ipc:///run/kvstored/../pub":      ErrEndpoint,
		"/run/kvstored/\x00":              ErrEndpoint,
		"ipc://run/pub":                   ErrEndpoint,
		"tcp://127.0.0.1":                 ErrEndpoint,
		"tcp://127.0.0.1:0":               ErrEndpoint,
		"tcp://127.0.0.1:":                ErrEndpoint,
		"tcp://:5557":                     ErrNotAllowed,
		"http://127.0.0.1:5557":           ErrEndpoint,
		"127.0.0.1:5557":                  ErrEndpoint,
		"":                                ErrEndpoint,
	} {
		if err := a.Check(endpoint); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%q: %v, want %v", endpoint, err, want)
		}
	}
	none, err := Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := none.Check("tcp://127.0.0.1:1"); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("an empty list allows: %v", err)
	}
	for _, wrong := range []string{"", "*", "*.*", "127.0.0.1:5557", "tcp://127.0.0.1", "10.0.0.0/33", "a b", "run/x"} {
		if _, err := Parse([]string{"::1", wrong}); err == nil || !strings.Contains(err.Error(), "write an address") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func FuzzAllow(f *testing.F) {
	f.Add("tcp://127.0.0.1:5557")
	f.Add("/run/kvstored/x")
	a, err := Parse([]string{"10.0.0.0/8", "/run/kvstored/*"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, endpoint string) {
		if a.Check(endpoint) == nil && !strings.HasPrefix(endpoint, "tcp://10.") && !strings.HasPrefix(endpoint, "tcp://[::ffff:") && !strings.Contains(endpoint, "/run/kvstored/") {
			t.Errorf("%q is allowed", endpoint)
		}
	})
}
