package route

import (
	"net/http"
	"strconv"

	"github.com/kvstored/kvstored/internal/httpd"
	"github.com/kvstored/kvstored/router/feed"
	"github.com/kvstored/kvstored/router/index"
)

// call is one call of the service.
type call struct {
	method, path string
	changes      bool // it takes the token, or the Unix socket
	body         int64
	do           func(s *Service, r *http.Request, body []byte) (any, error)
}

const (
	smallBody  = 64 << 10
	promptBody = 16 << 20
	eventBody  = 64 << 20
)

// calls are all of them, in the order of router/docs/reference.md.
var calls = []call{
	{"POST", "/v1/register", true, smallBody, decoded(func(s *Service, q *Worker) (*struct{}, error) {
		return new(struct{}), s.Register(*q)
	})},
	{"POST", "/v1/unregister", true, smallBody, decoded(func(s *Service, q *Name) (*struct{}, error) {
		return new(struct{}), s.Unregister(index.Worker{ID: q.ID, Rank: q.Rank})
	})},
	{"GET", "/v1/workers", false, 0, func(s *Service, _ *http.Request, _ []byte) (any, error) { return s.Workers(), nil }},
	{"POST", "/v1/query", false, promptBody, decoded((*Service).Query)},
	{"POST", "/v1/query_by_hash", false, promptBody, decoded((*Service).QueryByHash)},
	{"POST", "/v1/select", false, promptBody, (*Service).selectCall},
	{"POST", "/v1/first", true, smallBody, decoded(func(s *Service, q *Progress) (*struct{}, error) {
		return new(struct{}), s.Progress(q, false)
	})},
	{"POST", "/v1/free", true, smallBody, decoded(func(s *Service, q *Progress) (*struct{}, error) {
		return new(struct{}), s.Progress(q, true)
	})},
	{"POST", "/v1/events", true, eventBody, (*Service).eventsCall},
	{"GET", "/v1/dump", false, 0, (*Service).dumpCall},
}

// decoded is a call whose request is JSON.
func decoded[Q, R any](do func(*Service, *Q) (*R, error)) func(*Service, *http.Request, []byte) (any, error) {
	return func(s *Service, _ *http.Request, body []byte) (any, error) {
		q := new(Q)
		if err := httpd.Decode(body, q); err != nil {
			return nil, refuse(ErrRequest, "%w", err)
		}
		return do(s, q)
	}
}

// Name is a worker.
type Name struct {
	ID   string `json:"id"`
	Rank uint32 `json:"rank,omitempty"`
}

// Question is a prompt and how to look.
type Question struct {
	Prompt
	EarlyExit bool `json:"early_exit,omitempty"`
}

// Answer is what workers have of a prompt.
type Answer struct {
	Tokens  int     `json:"tokens"` // of the prompt
	Workers []Found `json:"workers"`
}

// Query answers for tokens.
func (s *Service) Query(q *Question) (*Answer, error) {
	if q.Tokens == nil {
		return nil, refuse(ErrRequest, "no tokens; query_by_hash is for hashes")
	}
	return s.ask(q)
}

// QueryByHash answers for hashes.
func (s *Service) QueryByHash(q *Question) (*Answer, error) {
	if q.Tokens != nil {
		return nil, refuse(ErrRequest, "tokens; query is for these")
	}
	return s.ask(q)
}

func (s *Service) ask(q *Question) (*Answer, error) {
	tokens, found, err := s.query(&q.Prompt, q.EarlyExit)
	if err != nil {
		return nil, err
	}
	if found == nil {
		found = []Found{}
	}
	return &Answer{Tokens: tokens, Workers: found}, nil
}

// selectCall is Select; a reservation is a change.
func (s *Service) selectCall(r *http.Request, body []byte) (any, error) {
	q := new(Selection)
	if err := httpd.Decode(body, q); err != nil {
		return nil, refuse(ErrRequest, "%w", err)
	}
	if q.Reserve {
		if err := s.allowed(r); err != nil {
			return nil, err
		}
	}
	return s.Select(q)
}

// posted is the answer to a batch: the number that is expected next.
type posted struct {
	Next uint64 `json:"next"`
}

// eventsCall takes in a batch in msgpack; the query names its worker and number.
func (s *Service) eventsCall(r *http.Request, body []byte) (any, error) {
	v, err := values(r, "worker", "rank", "epoch", "seq")
	if err != nil {
		return nil, err
	}
	rank, err := strconv.ParseUint(orZero(v["rank"]), 10, 32)
	if err != nil {
		return nil, refuse(ErrRequest, "rank %.40q; write a whole number", v["rank"])
	}
	seq, err := strconv.ParseUint(v["seq"], 10, 63)
	if err != nil {
		return nil, refuse(ErrRequest, "seq %.40q; write the number of the batch", v["seq"])
	}
	if v["worker"] == "" || v["epoch"] == "" || len(v["epoch"]) > maxText {
		return nil, refuse(ErrRequest, "no worker, or no epoch of up to %d bytes, behind ? in the path", maxText)
	}
	next, err := s.Posted(index.Worker{ID: v["worker"], Rank: uint32(rank)}, v["epoch"], seq, body)
	return posted{next}, err
}

func orZero(text string) string {
	if text == "" {
		return "0"
	}
	return text
}

// values are what stands behind ? in the path: each name once, and no other.
func values(r *http.Request, known ...string) (map[string]string, error) {
	if err := r.ParseForm(); err != nil {
		return nil, refuse(ErrRequest, "what follows ? in the path cannot be read: %w", err)
	}
	all := make(map[string]string)
	for name, list := range r.URL.Query() {
		at := false
		for _, k := range known {
			at = at || k == name
		}
		if !at || len(list) != 1 {
			return nil, refuse(ErrRequest, "%.80q is there %d times; known, once each, are %v", name, len(list), known)
		}
		all[name] = list[0]
	}
	return all, nil
}

// State is a worker and how it does.
type State struct {
	Worker
	Seconds   float64 `json:"seconds"` // since it was registered
	Queue     float64 `json:"queue"`   // seconds of work
	Running   int     `json:"running"` // reservations
	Rate      float64 `json:"rate"`    // of prefill, tokens a second, as measured or given
	Engine    *Source `json:"engine_events,omitempty"`
	Daemon    *Source `json:"kvstored_events,omitempty"`
	Connected bool    `json:"connected"` // all sources are
}

// Source is what one source has said.
type Source struct {
	feed.Stats
	Error string `json:"error,omitempty"` // the last one
}

// Workers are all workers, in the order in which they were registered.
func (s *Service) Workers() []State {
	all := []State{}
	s.mu.Lock()
	now := s.clock()
	var members []*member
	for _, w := range s.mu.order {
		members = append(members, w)
		all = append(all, State{
			Worker: w.Worker, Seconds: s.now().Sub(w.since).Seconds(), Connected: true,
			Queue: s.mu.loads.Queue(now, w.name(), &w.speeds), Running: s.mu.loads.Running(w.name()), Rate: w.speeds.Prefill,
		})
	}
	s.mu.Unlock()
	for i, w := range members {
		all[i].Engine, all[i].Daemon = sourceOf(w.engine), sourceOf(w.daemon)
		for _, source := range []*Source{all[i].Engine, all[i].Daemon} {
			all[i].Connected = all[i].Connected && (source == nil || source.Connected)
		}
	}
	return all
}

func sourceOf(p *feed.Publisher) *Source {
	if p == nil {
		return nil
	}
	stats, err := p.Stats()
	out := &Source{Stats: stats}
	if err != nil {
		out.Error = err.Error()
	}
	return out
}

// dumped is a part of the index, for people.
type dumped struct {
	Shards []dumpedShard `json:"shards"`
}

type dumpedShard struct {
	Model       string        `json:"model"`
	Tenant      string        `json:"tenant,omitempty"`
	LoRA        string        `json:"lora,omitempty"`
	BlockTokens int           `json:"block_tokens"`
	Total       int           `json:"total"` // blocks
	Blocks      []dumpedBlock `json:"blocks"`
}

type dumpedBlock struct {
	Hash    Hash                `json:"hash"`
	Parent  *Hash               `json:"parent,omitempty"`
	Workers map[string][]string `json:"workers"`
}

const (
	defaultDump = 1000
	maxDump     = 100_000
)

// dumpCall is the first blocks of each shard. Salts are secrets, and not told.
func (s *Service) dumpCall(r *http.Request, _ []byte) (any, error) {
	v, err := values(r, "limit", "model")
	if err != nil {
		return nil, err
	}
	limit := defaultDump
	if text := v["limit"]; text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 0 || limit > maxDump {
			return nil, refuse(ErrRequest, "limit %.40q; use 0 to %d blocks", text, maxDump)
		}
	}
	if m := v["model"]; m != "" && s.models[m] == nil {
		return nil, s.unknown(m)
	}
	out := &dumped{Shards: []dumpedShard{}}
	for _, name := range s.index.Names() {
		shard := s.shard(name)
		if shard == nil || !feed.OfModel(name.Model, v["model"]) {
			continue
		}
		d := dumpedShard{Model: name.Model, Tenant: name.Tenant, LoRA: name.LoRA, BlockTokens: shard.Config().BlockTokens, Total: shard.Stats().Blocks, Blocks: []dumpedBlock{}}
		for _, h := range shard.Dump(limit) {
			d.Blocks = append(d.Blocks, dumpedOf(h))
		}
		limit -= len(d.Blocks)
		out.Shards = append(out.Shards, d)
	}
	return out, nil
}

func dumpedOf(h index.Held) dumpedBlock {
	b := dumpedBlock{Hash: Hash(h.Hash), Workers: make(map[string][]string)}
	if parent, below := h.Parent.Hash(); below {
		b.Parent = (*Hash)(&parent)
	}
	for _, one := range h.Holders {
		for _, m := range one.Media {
			b.Workers[one.Worker.String()] = append(b.Workers[one.Worker.String()], m.String())
		}
	}
	return b
}
