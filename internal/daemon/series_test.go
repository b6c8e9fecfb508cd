package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/key"
)

// series is how many a daemon exports.
func series(t *testing.T, d *Daemon) (n int) {
	t.Helper()
	_, text := fetchPage(t, d, "/metrics")
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n
}

// useModels has a client ask for a prompt of each of some models, also with operations that
// are refused.
func useModels(t *testing.T, d *Daemon, from, to int, name string) {
	t.Helper()
	c, err := client.Dial(t.Context(), d.cfg.Listen.Socket, client.Options{Inline: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := from; i < to; i++ {
		sp, err := c.OpenSpace(t.Context(), key.Space{Model: fmt.Sprintf(name, i), DType: "b", World: 1, ChunkTokens: 4, Method: key.SHA256})
		if err != nil {
			t.Fatal(err)
		}
		p := client.Tokens([]uint32{1, 2, 3, uint32(i)})
		p.Space = sp
		if _, err := c.Put(t.Context(), p, 0, [][]byte{make([]byte, 100)}); err != nil {
			t.Fatal(err)
		}
		j, err := c.Prefetch(t.Context(), p, client.PrefetchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, _ = c.Put(t.Context(), p, 5, [][]byte{{1}})
	}
}

// TestSeries: 50 models make at most 2,000 series, and
// clients that name more models than there can be at most 10,000.
func TestSeries(t *testing.T) {
	cfg := smallConfig(t)
	cfg.Admin.Listen = "127.0.0.1:0"
	d := serve(t, cfg)
	useModels(t, d, 0, 50, "model-%d")
	if n := series(t, d); n > 2000 || n < 500 {
		t.Errorf("%d series with 50 models", n)
	} else {
		t.Logf("%d series with 50 models", n)
	}
	for i := range 5 {
		useModels(t, d, 200*i, 200*(i+1), "%d"+strings.Repeat("\"\n{}", 50))
	}
	if n := series(t, d); n > 10_000 {
		t.Errorf("%d series with 1,000 models", n)
	} else {
		t.Logf("%d series with 1,000 models", n)
	}
	_, text := fetchPage(t, d, "/metrics")
	if want := `kvstored_model_hit_tokens_total{model="model-7",tier="cpu"} 4`; !strings.Contains(text, want) {
		t.Errorf("there is no %s", want)
	}
	st := d.stats()
	if i := slices.IndexFunc(st.Server.Models, func(m server.ModelStats) bool { return m.Model == "model-7" }); i < 0 || st.Server.Models[i].StoredBytes != 100 {
		t.Errorf("no 100 bytes of model-7 were stored: %+v", st.Server.Models)
	}
	if st.WhatIf == nil || st.WhatIf.Share <= 0 {
		t.Errorf("the sample has %+v", st.WhatIf)
	}
}

// administrator asks at the socket of administrators.
func administrator(cfg *config.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", cfg.AdminSocket())
	}}}
}

// TestProfiles: a profile is had on the socket of administrators, and nowhere else.
func TestProfiles(t *testing.T) {
	cfg := smallConfig(t)
	cfg.Admin.Listen, cfg.Disk.Capacity = "127.0.0.1:0", 0
	d := serve(t, cfg)
	c := administrator(&cfg)
	defer c.CloseIdleConnections()
	for _, path := range []string{"goroutine?debug=1", "heap", "profile?seconds=1", "cmdline", ""} {
		resp, err := c.Get("http://kvstored/debug/pprof/" + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || len(text) == 0 {
			t.Errorf("%s: %v, %d bytes, %v", path, resp.Status, len(text), err)
		}
	}
	resp, err := c.Get("http://kvstored/debug/pprof/nothing")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("of nothing: %v", resp.Status)
	}
	if status, _ := fetchPage(t, d, "/debug/pprof/"); status != http.StatusNotFound {
		t.Errorf("over TCP: %d", status)
	}
}

// TestSampleCall: the sample of the socket of administrators has what clients asked for, and
// the daemon's tiers.
func TestSampleCall(t *testing.T) {
	cfg := smallConfig(t)
	d := serve(t, cfg)
	useModels(t, d, 0, 3, "m%d")
	c := administrator(&cfg)
	defer c.CloseIdleConnections()
	resp, err := c.Get("http://kvstored/v1/sample")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var s explain.Sample
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil || len(s.Prompts) != 3 || s.Shift != 0 || s.Tiers.DRAM.Bytes == 0 || s.Tiers.Disk.Bytes == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if asked, hit := hitsOf(d.server.Stats()); s.Measured.AskedTokens != asked || s.Measured.HitTokens != hit || asked == 0 {
		t.Errorf("measured %+v, counted %d and %d", s.Measured, asked, hit)
	}
}
