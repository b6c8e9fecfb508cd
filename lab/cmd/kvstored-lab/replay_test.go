package main

import (
	"encoding/json"
	"testing"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/lab/replay"
)

// smallTrace has 4 prompts: the second goes on from the first, the third
// is the first again, the fourth shares one block.
const smallTrace = `{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}
{"timestamp": 9, "input_length": 2000, "output_length": 5, "hash_ids": [0, 1, 3, 4]}
{"timestamp": 9, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}
{"timestamp": 9, "input_length": 600, "output_length": 5, "hash_ids": [0, 9]}
`

func TestReplay(t *testing.T) {
	serveHere(t)
	trace := write(t, smallTrace)
	play := func(args ...string) (int, replay.Result, string) {
		args = append([]string{"replay", "--trace", trace, "--json", "--wait-complete", "--payload-bytes", "20KiB"}, args...)
		code, out, errs := lab(t, args...)
		var r replay.Result
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatalf("%s: %v: %q, %s", args, err, out, errs)
		}
		return code, r, errs
	}
	code, r, errs := play("--save-unfull")
	if hit := int64(1024 + 1100 + 512); code != exitOK || r.TotalHitTokens != hit || r.TotalPromptTokens != 4800 || r.BlockAccesses != 12 || r.BlockHits != 6 {
		t.Errorf("exit code %d, hit %d of %d tokens, %d of %d blocks, want %d of 4800, 6 of 12; %s",
			code, r.TotalHitTokens, r.TotalPromptTokens, r.BlockHits, r.BlockAccesses, hit, errs)
	}
	if !r.Complete || !r.DaemonAgrees() || r.StoredBlocks != 6 || r.BytesWritten != 6*20<<10 || r.Mismatches != 0 {
		t.Errorf("result %+v", r)
	}
	if code, r, _ = play("--save-unfull", "--limit", "2", "--concurrency", "2"); code != exitOK || r.Requests != 2 || r.TotalHitTokens != 3100 {
		t.Errorf("again, two: exit code %d, %d requests, %d hit", code, r.Requests, r.TotalHitTokens)
	}
}

// TestReplayFindsWrongBytes: one wrong byte in what the daemon returns is a
// mismatch, the prefix ends there, and the exit code says so.
func TestReplayFindsWrongBytes(t *testing.T) {
	socket := serveHere(t)
	trace := write(t, smallTrace)
	o := replay.Options{Name: trace, BlockTokens: 512, PayloadBytes: 20 << 10}
	space := o.Space()
	id, err := space.ID()
	if err != nil {
		t.Fatal(err)
	}
	payloads := make([][]byte, 2)
	for i := range payloads {
		payloads[i] = make([]byte, o.PayloadBytes)
		replay.Fill(payloads[i], key.Key{Space: id, Hash: key.Hash{0: byte(i + 1)}})
	}
	payloads[1][12_345] ^= 1
	c, err := client.Dial(t.Context(), socket, client.Options{Space: &space})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Put(t.Context(), client.Hashes(8, []byte{7: 0, 0: 1, 8: 2, 15: 0}, []uint32{512, 512}), 0, payloads); err != nil {
		t.Fatal(err)
	}
	code, out, _ := lab(t, "replay", "--trace", trace, "--json", "--payload-bytes", "20KiB", "--socket", socket, "--limit", "1")
	var r replay.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if code != exitFailure || r.Mismatches != 1 || r.TotalHitTokens != 512 || len(r.Wrong) != 1 || r.Wrong[0].Offset != 12_345 {
		t.Errorf("exit code %d, %d hit, %+v", code, r.TotalHitTokens, r.Wrong)
	}
}
