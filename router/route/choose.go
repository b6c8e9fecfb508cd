package route

import (
	"fmt"

	"github.com/kvstored/kvstored/router/index"
	"github.com/kvstored/kvstored/router/pick"
)

// Selection asks for the worker that a prompt should go to.
type Selection struct {
	Prompt
	// Reserve has the worker be busy with the prompt until its reservation is freed.
	Reserve bool `json:"reserve,omitempty"`
	// Temperature in seconds, instead of the service's.
	Temperature *float64 `json:"temperature,omitempty"`
	// Only workers with these ids are candidates, if there are any; none of Except.
	Only   []string `json:"only,omitempty"`
	Except []string `json:"except,omitempty"`
}

// Selected is the answer.
type Selected struct {
	ID   string `json:"id"`
	Rank uint32 `json:"rank,omitempty"`
	URL  string `json:"url,omitempty"`
	// Seconds are expected until the first token: queue, load and compute.
	Seconds float64 `json:"seconds"`
	Queue   float64 `json:"queue"`
	Load    float64 `json:"load"`
	Compute float64 `json:"compute"`
	// Reused are tokens that the worker need not compute.
	Reused int `json:"reused"`
	// Reservation is the number to be freed; 0 without one.
	Reservation uint64 `json:"reservation,omitempty"`
	Candidates  int    `json:"candidates"`
}

// maxListed bounds the ids in a selection.
const maxListed = 4096

// check reports the first thing that is wrong beside the prompt.
func (q *Selection) check() error {
	switch {
	case len(q.Only) > maxListed || len(q.Except) > maxListed:
		return refuse(ErrRequest, "%d ids in only, %d in except; at most %d each", len(q.Only), len(q.Except), maxListed)
	case q.Temperature != nil && !(*q.Temperature >= 0 && *q.Temperature <= 3600):
		return refuse(ErrRequest, "a temperature of %v s; use 0 to 3600", *q.Temperature)
	}
	return nil
}

// Select says which worker a prompt should go to, and reserves if that is asked.
func (s *Service) Select(q *Selection) (*Selected, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	tokens, found, err := s.query(&q.Prompt, false)
	if err != nil {
		return nil, err
	}
	have := make(map[index.Worker]*Found, len(found))
	for i := range found {
		have[index.Worker{ID: found[i].ID, Rank: found[i].Rank}] = &found[i]
	}
	out, w, err := s.choose(q, tokens, have)
	if err != nil {
		return nil, err
	}
	s.counts.asked.Add(float64(tokens))
	s.counts.reused.Add(float64(out.Reused))
	if q.Reserve {
		err = s.predict(w, &q.Prompt)
	}
	return out, err
}

// choose takes one of the candidates.
func (s *Service) choose(q *Selection, tokens int, have map[index.Worker]*Found) (*Selected, *member, error) {
	only, except := setOf(q.Only), setOf(q.Except)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	var workers []*member
	var estimates []pick.Estimate
	for _, w := range s.mu.order {
		if w.leaving || w.Model != q.Model || w.Tenant != q.Tenant || len(only) > 0 && !only[w.ID] || except[w.ID] {
			continue
		}
		c := pick.Candidate{Worker: w.name(), Queue: s.mu.loads.Queue(now, w.name(), &w.speeds), Speeds: w.speeds}
		if f := have[w.name()]; f != nil {
			c.Tokens = f.Tokens
		}
		workers = append(workers, w)
		estimates = append(estimates, pick.Expect(tokens, &c))
	}
	temperature := s.o.Temperature
	if q.Temperature != nil {
		temperature = *q.Temperature
	}
	i := pick.Choose(estimates, temperature, s.o.Random)
	if i < 0 {
		return nil, nil, refuse(ErrNoWorker, "for model %.80q, tenant %.80q; %d are registered in all", q.Model, q.Tenant, len(s.mu.order))
	}
	w, e := workers[i], estimates[i]
	out := &Selected{
		ID: w.ID, Rank: w.Rank, URL: w.URL, Seconds: e.Seconds(), Queue: e.Queue, Load: e.Load, Compute: e.Compute,
		Reused: e.Reused, Candidates: len(workers),
	}
	if q.Reserve {
		id, err := s.mu.loads.Reserve(now, w.name(), e.Work(), tokens-e.Reused)
		if err != nil {
			return nil, nil, err
		}
		out.Reservation = id
	}
	return out, w, nil
}

func setOf(ids []string) map[string]bool {
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// Progress is what a caller says of a request under way.
type Progress struct {
	Reservation uint64 `json:"reservation"`
	// What its prefill took, where that was measured: computed tokens and seconds.
	PrefillTokens  int     `json:"prefill_tokens,omitempty"`
	PrefillSeconds float64 `json:"prefill_seconds,omitempty"`
}

// measured is how much of a worker's rate of prefill each measurement is.
const measured = 1.0 / 8

// leastMeasured is from how many tokens on a measurement says something of the rate.
const leastMeasured = 256

// Progress notes the first token of a request, or, with end, its end.
func (s *Service) Progress(q *Progress, end bool) error {
	if q.PrefillTokens < 0 || !(q.PrefillSeconds >= 0 && q.PrefillSeconds <= 1e6) || (q.PrefillTokens > 0) != (q.PrefillSeconds > 0) {
		return refuse(ErrRequest, "%d prefill_tokens in %v prefill_seconds; send both, above 0, or neither", q.PrefillTokens, q.PrefillSeconds)
	}
	s.mu.Lock()
	note := s.mu.loads.First
	if end {
		note = s.mu.loads.Free
	}
	r, err := note(s.clock(), q.Reservation)
	w := s.mu.members[r.Worker]
	if err == nil && w != nil && q.PrefillTokens >= leastMeasured {
		rate := float64(q.PrefillTokens) / q.PrefillSeconds
		w.speeds.Prefill += (rate - w.speeds.Prefill) * measured
	}
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("progress: %w", err)
	}
	if w != nil && w.engine != nil && w.Events != Post && !r.Started && r.Tokens > w.model.BlockTokens {
		w.engine.Due() // it has computed blocks, so it tells of them
	}
	return nil
}
