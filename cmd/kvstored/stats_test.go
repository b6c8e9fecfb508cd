package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// TestStatsBegin: the first lines are how the daemon is, what it has saved, and the bottleneck;
// new text is no miss.
func TestStatsBegin(t *testing.T) {
	const text = `{"health":"degraded: x, since 10:02","uptime_seconds":3600,"bottleneck":"the disk is too slow","advice":"83 % was hit",
		"recent":{"seconds":600,"asked_tokens":100,"hit_tokens":80,"saved_seconds":8},"restart":{"sentence":"A restart now costs."},
		"evicted_by":[{"of":"m","by":"n","chunks":12},{"of":"n","by":"n","chunks":3}],
		"server":{"asked_tokens":1000,"hit_tokens":{"cpu":500,"disk":330},"models":[{"model":"m","asked_tokens":900,"hit_tokens":[500,330,0],"prefill_rate":10,"saved_seconds":83},{"model":"n","asked_tokens":100}],
		"missed":{"missed":[{"tier":"none","reason":"never_stored","tokens":150},{"tier":"disk","reason":"timeout","tokens":20}]}},
		"store":{"tiers":{"cpu":{"capacity_bytes":1},"disk":{"capacity_bytes":1}}}}`
	var v statsView
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	v.print(&out)
	begin, rest, _ := strings.Cut(out.String(), "kvstored ")
	if want := "degraded: x, since 10:02 830 tokens not computed, 83.0 % of what was asked for: 1m23s of GPU time, at the rate that engines report; in the last 10m0s 80 (80.0 %): 8.0 s of GPU time, at the rate that engines report the disk is too slow"; strings.Join(strings.Fields(begin), " ") != want {
		t.Errorf("it begins with\n%s\nwant %s", begin, want)
	}
	rest = strings.Join(strings.Fields(rest), " ")
	if want := "A restart now costs. tokens share hit in DRAM 500 50.0 % hit in disk 330 33.0 % hit 830 83.0 % new text 150 15.0 % missed 20 2.0 % asked 1,000 missed, and why tokens share timeout (disk) 20 2.0 % 83 % was hit of model asked hit share GPU time saved m 900 830 92.2 % 1m23s n 100 0 0.0 % - chunks gone from all tiers in the last hour by n of m 12 of n 3"; !strings.Contains(rest, want) {
		t.Errorf("no %q in\n%s", want, rest)
	}
	v = statsView{Health: "ready"}
	out.Reset()
	if v.print(&out); !strings.HasPrefix(out.String(), "ready\nkvstored ") || strings.Contains(out.String(), "missed, and why") {
		t.Errorf("where nothing was asked:\n%s", out.String())
	}
}

// What spaces under a quota have is in the text, too.
func TestStatsShowQuotas(t *testing.T) {
	const text = `{"store":{"tiers":{"cpu":{"capacity_bytes":1048576,"quotas":[
		{"match":"llama-*","quota_bytes":524288,"used_bytes":262144,"evictions":3,"evicted_bytes":12288,"refused":2}]}}}}`
	var v statsView
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	v.print(&out)
	want := `256 KiB of 512 KiB used by models that match "llama-*"; 3 chunks evicted, 2 refused`
	if !strings.Contains(out.String(), "quota in DRAM") || !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
		t.Errorf("no line says %q:\n%s", want, out.String())
	}
}
