package route

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/router/feed/feedtest"
)

// The calls in the order in which a router makes them.
func TestCalls(t *testing.T) {
	r := newRig(t, nil)
	r.want("ok", "/v1/register", `{"id": "a", "model": "m", "events": "post", "url": "http://a"}`)
	r.want("ok", "/v1/register", `{"id": "b", "model": "m", "events": "post"}`)
	r.want("ok", "/v1/events?worker=a&epoch=1&seq=0", feedtest.Batch(feedtest.Stored(nil, 1, 2, 3)))
	if next := r.want("ok", "/v1/events?worker=b&epoch=1&seq=0", feedtest.Batch(feedtest.Stored(nil, 1)))["next"]; next != 1.0 {
		t.Errorf("after batch 0 comes %v", next)
	}
	prompt := `"model": "m", "tokens": [1, 1, 2, 2, 3, 3, 4, 4]`
	if got := fmt.Sprint(r.want("ok", "/v1/query", "{"+prompt+"}")); got != "map[tokens:8 workers:[map[id:a tokens:[6 6 6 6]] map[id:b tokens:[2 2 2 2]]]]" {
		t.Errorf("query: %s", got)
	}
	dump := r.want("ok", "/v1/dump?limit=2", nil)
	blocks := dump["shards"].([]any)[0].(map[string]any)["blocks"].([]any)
	first := blocks[0].(map[string]any)
	if len(blocks) != 2 || fmt.Sprint(first["workers"]) != "map[a:[gpu] b:[gpu]]" || first["parent"] != nil || blocks[1].(map[string]any)["parent"] != first["hash"] {
		t.Errorf("dump: %v", dump)
	}
	byHash := fmt.Sprintf(`{"model": "m", "hashes": [%q, %q]}`, first["hash"], blocks[1].(map[string]any)["hash"])
	if got := fmt.Sprint(r.want("ok", "/v1/query_by_hash", byHash)); got != "map[tokens:4 workers:[map[id:a tokens:[4 4 4 4]] map[id:b tokens:[2 2 2 2]]]]" {
		t.Errorf("query by hash: %s", got)
	}

	chosen := r.want("ok", "/v1/select", "{"+prompt+`, "reserve": true}`)
	if chosen["id"] != "a" || chosen["url"] != "http://a" || chosen["reused"] != 6.0 || chosen["candidates"] != 2.0 {
		t.Errorf("selected: %v", chosen)
	}
	if got := r.want("ok", "/v1/select", "{"+prompt+`, "except": ["a"]}`); got["id"] != "b" || got["reservation"] != nil {
		t.Errorf("without a: %v", got)
	}
	if got := r.s.Workers()[0]; got.Running != 1 || got.Queue <= 0 {
		t.Errorf("a has %+v", got)
	}
	done := fmt.Sprintf(`{"reservation": %v, "prefill_tokens": 1000, "prefill_seconds": 1}`, chosen["reservation"])
	r.want("ok", "/v1/first", done)
	r.want("ok", "/v1/free", strings.Replace(done, `, "prefill_tokens": 1000, "prefill_seconds": 1`, "", 1))
	r.want("unknown_reservation", "/v1/free", done)
	if got := r.s.Workers()[0]; got.Running != 0 || got.Queue != 0 || got.Rate != 8000-7000.0/8 {
		t.Errorf("a is done and has %+v", got)
	}

	r.want("ok", "/v1/unregister", `{"id": "a"}`)
	r.want("unknown_worker", "/v1/unregister", `{"id": "a"}`)
	if got := fmt.Sprint(r.want("ok", "/v1/query", "{"+prompt+"}")); got != "map[tokens:8 workers:[map[id:b tokens:[2 2 2 2]]]]" {
		t.Errorf("without a: %s", got)
	}
	r.want("ok", "/v1/register", `{"id": "a", "model": "m"}`)
	if list := r.want("ok", "/v1/workers", nil)["list"].(string); strings.Count(list, `"id"`) != 2 {
		t.Errorf("workers: %s", list)
	}
}

// Each wrong input has an error of its own.
func TestWrongInput(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxWorkers = 3 })
	r.want("ok", "/v1/register", `{"id": "a", "model": "m", "events": "post"}`)
	r.want("ok", "/v1/register", `{"id": "b", "model": "m", "events": "tcp://127.0.0.1:1"}`)
	many := feedtest.List{}
	for i := range 65537 {
		many = append(many, i)
	}
	at := "/v1/events?worker=a&epoch=1&seq="
	r.want("ok", at+"0", feedtest.Batch())
	zero := feedtest.List{"BlockStored", feedtest.List{1}, nil, feedtest.List{1, 1}, 0}
	for _, tc := range []struct {
		code, path string
		body       any
	}{
		{"worker_exists", "/v1/register", `{"id": "a", "model": "m"}`},
		{"unknown_model", "/v1/register", `{"id": "c", "model": "x"}`},
		{"worker_name", "/v1/register", `{"model": "m"}`},
		{"block_tokens", "/v1/register", `{"id": "c", "model": "chunks"}`},
		{"block_tokens", "/v1/register", `{"id": "c", "model": "m", "kvstored": "/run/k"}`},
		{"endpoint_not_allowed", "/v1/register", `{"id": "c", "model": "m", "events": "tcp://10.0.0.1:5557"}`},
		{"endpoint_not_allowed", "/v1/register", `{"id": "c", "model": "chunks", "kvstored": "/run/docker.sock"}`},
		{"bad_endpoint", "/v1/register", `{"id": "c", "model": "m", "events": "127.0.0.1:5557"}`},
		{"endpoint_taken", "/v1/register", `{"id": "c", "model": "m", "events": "tcp://127.0.0.1:1"}`},
		{"bad_request", "/v1/register", `{"id": "c", "model": "m", "replay": "tcp://127.0.0.1:2"}`},
		{"bad_request", "/v1/register", `{"id": "c", "model": "m", "engine": "trt"}`},
		{"bad_request", "/v1/register", `{"id": "c", "model": "m", "rank": -1}`},
		{"bad_request", "/v1/register", `{"id": "c", "model": "m", "speed": 1}`},
		{"bad_request", "/v1/register", `[]`},
		{"bad_request", "/v1/register", `{"id": "c"`},
		{"wrong_speed", "/v1/register", `{"id": "c", "model": "m", "prefill": -5}`},
		{"unknown_worker", "/v1/unregister", `{"id": "z"}`},
		{"unknown_model", "/v1/query", `{"model": "x", "tokens": [1]}`},
		{"bad_request", "/v1/query", `{"model": "m"}`},
		{"bad_request", "/v1/query", `{"model": "m", "tokens": [-1]}`},
		{"bad_request", "/v1/query", `{"model": "m", "tokens": [4294967296]}`},
		{"bad_request", "/v1/query_by_hash", `{"model": "m", "hashes": ["12"]}`},
		{"bad_request", "/v1/query_by_hash", `{"model": "m", "tokens": [1]}`},
		{"too_large", "/v1/query_by_hash", `{"model": "m", "hashes": [` + strings.Repeat("1,", maxHashes) + `1]}`},
		{"too_large", "/v1/query", strings.Repeat(" ", promptBody+1)},
		{"no_worker", "/v1/select", `{"model": "chunks", "tokens": [1]}`},
		{"no_worker", "/v1/select", `{"model": "m", "tokens": [1], "only": ["z"]}`},
		{"bad_request", "/v1/select", `{"model": "m", "tokens": [1], "temperature": -1}`},
		{"unknown_reservation", "/v1/free", `{"reservation": 77}`},
		{"bad_request", "/v1/free", `{"reservation": 77, "prefill_tokens": 1}`},
		{"unknown_worker", "/v1/events?worker=z&epoch=1&seq=0", feedtest.Batch()},
		{"not_posted", "/v1/events?worker=b&epoch=1&seq=0", feedtest.Batch()},
		{"bad_request", "/v1/events?worker=a&seq=0", feedtest.Batch()},
		{"bad_request", "/v1/events?worker=a&epoch=1", feedtest.Batch()},
		{"bad_request", "/v1/events?worker=a&epoch=1&seq=1&to=all", feedtest.Batch()},
		{"gap", at + "7", feedtest.Batch()},
		{"restart", at + "0", feedtest.Batch(feedtest.Removed(1))},
		{"wrong_rank", at + "1", feedtest.Pack(nil, feedtest.List{1, feedtest.List{}, 5})},
		{"block_tokens", "/v1/events?worker=a&epoch=2&seq=0", feedtest.Batch(zero)},
		{"unknown_call", "/v1/nonesuch", `{}`},
		{"wrong_method", "/v1/query", nil},
		{"wrong_method", "/v1/dump", `{}`},
		{"bad_request", "/v1/dump?limit=x", nil},
		{"unknown_model", "/v1/dump?model=x", nil},
	} {
		if reply := r.want(tc.code, tc.path, tc.body); strings.Count(fmt.Sprint(reply["error"]), "wrong request") > 1 {
			t.Errorf("%s: %v", tc.path, reply)
		}
	}
	// A worker that has sent garbage is not heard for a while, so these have one each.
	r.want("ok", "/v1/unregister", `{"id": "a"}`)
	for _, tc := range []struct {
		code string
		body []byte
	}{
		{"too_many_hashes", feedtest.Batch(feedtest.List{"BlockRemoved", many, "GPU"})},
		{"bad_batch", []byte("garbage")},
		{"bad_batch", feedtest.Batch(feedtest.List{})},
	} {
		r.want("ok", "/v1/register", `{"id": "c", "model": "m", "events": "post"}`)
		r.want(tc.code, "/v1/events?worker=c&epoch=1&seq=0", tc.body)
		r.want("ignored", "/v1/events?worker=c&epoch=1&seq=1", feedtest.Batch())
		r.want("ok", "/v1/unregister", `{"id": "c"}`)
	}
	r.want("ok", "/v1/register", `{"id": "c", "model": "m", "events": "post"}`)
	r.want("ok", "/v1/register", `{"id": "d", "model": "m"}`)
	r.want("too_many_workers", "/v1/register", `{"id": "e", "model": "m"}`)
}

// What a worker that tells nothing was sent counts as there.
func TestSilentWorker(t *testing.T) {
	r := newRig(t, nil)
	r.want("ok", "/v1/register", `{"id": "a", "model": "m", "ttl_seconds": 3600}`)
	r.want("ok", "/v1/register", `{"id": "b", "model": "m"}`)
	prompt := `{"model": "m", "tokens": [1, 1, 2, 2, 3, 3], "reserve": true`
	if got := r.want("ok", "/v1/select", prompt+`, "only": ["b"]}`); got["reused"] != 0.0 {
		t.Errorf("at first: %v", got)
	}
	if n := r.tokens("b", 1, 2, 3); n != 6 {
		t.Errorf("b was sent 6 tokens and has %d", n)
	}
	if got := r.want("ok", "/v1/select", prompt+`, "except": ["a"]}`); got["reused"] != 5.0 {
		t.Errorf("then: %v", got)
	}
}

// Ties go to each in turn of chance, and work that was given counts.
func TestSelectSpreads(t *testing.T) {
	r := newRig(t, nil)
	for i := range 4 {
		r.want("ok", "/v1/register", fmt.Sprintf(`{"id": "%d", "model": "m", "events": "post"}`, i))
	}
	count := func(reserve bool) map[string]int {
		n := make(map[string]int)
		for i := range 400 {
			got, err := r.s.Select(&Selection{Prompt: Prompt{Model: "m", Tokens: feedtest.Tokens(i + 1)}, Reserve: reserve})
			if err != nil {
				t.Fatal(err)
			}
			n[got.ID]++
		}
		return n
	}
	for id, n := range count(false) {
		if n < 60 || n > 140 {
			t.Errorf("without work %s has %d of 400", id, n)
		}
	}
	for id, n := range count(true) {
		if n < 90 || n > 110 {
			t.Errorf("with work %s has %d of 400", id, n)
		}
	}
}
