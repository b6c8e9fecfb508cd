package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

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
