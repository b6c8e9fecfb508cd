package router_test

import (
	"bufio"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
)

// between is the part of a text between two others.
func between(t *testing.T, text, before, after string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, before)
	part, _, ends := strings.Cut(rest, after)
	if !found || !ends {
		t.Fatalf("there is nothing between %q and %q", before, after)
	}
	return part
}

// TestRouteAsDeployed starts the router with the arguments, the variables and the
// configuration of its Deployment, and asks what a kubelet and a gateway ask.
func TestRouteAsDeployed(t *testing.T) {
	data, err := os.ReadFile(daemon.Root() + "/router/deploy/kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, dir := string(data), t.TempDir()
	token, file := filepath.Join(dir, "token"), filepath.Join(dir, "router.yaml")
	conf := strings.ReplaceAll(between(t, text, "router.yaml: |\n", "---\n"), "\n    ", "\n")
	conf = strings.Replace(conf, "/run/secrets/route/token", token, 1)
	for path, what := range map[string]string{token: "a secret\n", file: strings.TrimPrefix(conf, "    ")} {
		if err := os.WriteFile(path, []byte(what), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := strings.Split(between(t, text, "args: [", "]"), ", ")
	listen := strings.Replace(between(t, text, `{name: KVSTORED_ROUTE__LISTEN, value: "`, `"}`), "$(POD_IP)]:9465", "0.0.0.0]:0", 1)
	if unit, err := os.ReadFile(daemon.Root() + "/router/deploy/kvstored-router.service"); err != nil || !strings.HasSuffix(between(t, string(unit), "ExecStart=", "\n"), "/kvstored-router "+strings.Join(args, " ")) {
		t.Errorf("the unit has other arguments than the Deployment: %v", err)
	}
	cmd := exec.Command(daemon.Router(t), strings.Split(strings.Replace(strings.Join(args, " "), "/etc/kvstored/router.yaml", file, 1), " ")...)
	cmd.Env = append(daemon.Environ(), "KVSTORED_ROUTE__LISTEN="+listen)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var address string
	for lines := bufio.NewScanner(log); address == "" && lines.Scan(); {
		t.Log(lines.Text())
		if m := regexp.MustCompile(`"address":"[^"]*:(\d+)".*"listening"`).FindStringSubmatch(lines.Text()); m != nil {
			address = "127.0.0.1:" + m[1]
		}
	}
	for _, c := range []struct {
		path, host, token string
		want              int
	}{
		{"/healthz", "", "", http.StatusOK}, {"/readyz", "", "", http.StatusOK}, {"/metrics", "", "", http.StatusOK},
		{"/v1/workers", "", "", http.StatusForbidden}, {"/v1/workers", "", "a secret", http.StatusOK},
		{"/v1/workers", "kvstored-router:9465", "a secret", http.StatusOK}, {"/v1/workers", "elsewhere", "a secret", http.StatusForbidden},
	} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Host = c.host
		if c.token != "" {
			q.Header.Set("Authorization", "Bearer "+c.token)
		}
		p, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = p.Body.Close()
		if p.StatusCode != c.want {
			t.Errorf("%s of host %q, token %q: %d, want %d", c.path, c.host, c.token, p.StatusCode, c.want)
		}
	}
}

// TestBridgeAsDeployed starts the bridge with the arguments that the chart gives it, and
// asks what a kubelet asks: ready is that it hears the daemon.
func TestBridgeAsDeployed(t *testing.T) {
	chart, err := os.ReadFile(daemon.Root() + "/deploy/helm/kvstored/templates/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := daemon.Start(t, func(c *config.Config) { c.Events.Enabled = true })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	metrics := l.Addr().String()
	_ = l.Close() // the port is free now
	args := strings.ReplaceAll(between(t, string(chart), "args: [bridge, ", "]\n"), `"`, "")
	for from, to := range map[string]string{"/run/kvstored/kvstored.sock": d.Socket, "[$(POD_IP)]:9466": metrics, "[$(POD_IP)]:5557": "127.0.0.1:0", "[$(POD_IP)]:5558": "127.0.0.1:0", "{{ .Values.bridge.topic | quote }}": "kv"} {
		if !strings.Contains(args, from) {
			t.Errorf("the chart's arguments have no %s", from)
		}
		args = strings.ReplaceAll(args, from, to)
	}
	cmd := exec.Command(daemon.Router(t), append([]string{"bridge"}, strings.Split(args, ", ")...)...)
	cmd.Env, cmd.Stderr = daemon.Environ(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	wait := func(path string, want int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			p, err := http.Get("http://" + metrics + path)
			if err == nil {
				_ = p.Body.Close()
				if p.StatusCode == want {
					return
				}
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %v, %v, want %d", path, p, err, want)
			}
		}
	}
	wait("/healthz", http.StatusOK)
	wait("/readyz", http.StatusOK)
	d.Kill()
	wait("/readyz", http.StatusServiceUnavailable)
	wait("/metrics", http.StatusOK)
}
