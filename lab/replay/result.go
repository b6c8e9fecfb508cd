package replay

import "time"

// maxMismatches bounds how many wrong chunks a Result names. It counts all.
const maxMismatches = 16

// Result is everything a replay found out, as --json prints it. Field names
// are stable.
type Result struct {
	Requests          int     `json:"requests"`
	TotalPromptTokens int64   `json:"total_prompt_tokens"`
	TotalHitTokens    int64   `json:"total_hit_tokens"` // of verified prefixes
	OverallHitRate    float64 `json:"overall_hit_rate"` // of the two above
	// PerRequest has the hit tokens of each request of the trace, in its order, where
	// Options.PerRequest asks for them. Their sum is TotalHitTokens.
	PerRequest    []int64 `json:"per_request,omitempty"`
	BlockAccesses int64   `json:"block_accesses"` // chunks asked for
	BlockHits     int64   `json:"block_hits"`     // chunks in verified prefixes
	Mismatches    int     `json:"mismatches"`     // chunks with a wrong byte

	HitTokens map[string]int64 `json:"hit_tokens"` // by the tier they were found in
	HitBlocks map[string]int64 `json:"hit_blocks"`

	BytesRead    int64 `json:"bytes_read"` // verified
	BytesWritten int64 `json:"bytes_written"`

	// Of a hybrid model what all groups need for the matched prefixes, and what of that
	// was below DRAM.
	NeededBytes int64 `json:"needed_bytes,omitempty"`
	NeededBelow int64 `json:"needed_below_bytes,omitempty"`

	Seconds      float64 `json:"seconds"`
	GBPerSecond  float64 `json:"gb_per_second"` // read and written, 10^9 bytes
	LookupP50    float64 `json:"lookup_p50_us"` // until the daemon said what is there
	LookupP99    float64 `json:"lookup_p99_us"`
	ReadyP50     float64 `json:"ready_p50_us"` // until the prefix could be read
	ReadyP99     float64 `json:"ready_p99_us"`
	ColdReadyP50 float64 `json:"ready_from_below_p50_us"` // the same, where something came up from a lower tier
	ColdReadyP99 float64 `json:"ready_from_below_p99_us"`
	// ReadyBy is the time from request to ready prefix, by the farthest tier
	// that a part of it came from; "none" where nothing was found.
	ReadyBy       map[string]Spread `json:"ready_by_tier"`
	Behind        Spread            `json:"behind"`         // how late requests started, with Options.Speed
	LateRequests  int               `json:"late_requests"`  // answered after Options.Deadline
	ShortRequests int               `json:"short_requests"` // ready prefix shorter than what was matched

	StoredBlocks    int64 `json:"stored_blocks"`
	ExistsBlocks    int64 `json:"exists_blocks"`    // missing at lookup, there at reserve
	PendingBlocks   int64 `json:"pending_blocks"`   // being stored by another client
	RefusedBlocks   int64 `json:"refused_blocks"`   // no room
	DiffersBlocks   int64 `json:"differs_blocks"`   // there with other bytes
	RevokedRequests int   `json:"revoked_requests"` // lease did not hold: not counted as a hit

	ShortReasons map[string]int `json:"short_reasons,omitempty"`
	Wrong        []Mismatch     `json:"wrong,omitempty"` // the first ones

	// Complete says that every request of the trace was played.
	Complete bool `json:"complete"`
	// Daemon is by how much the daemon's own counters grew meanwhile.
	Daemon *DaemonCounts `json:"daemon,omitempty"`
	// Agrees says that the daemon counted what the clients counted. It cannot
	// where other clients were busy meanwhile. Nil: not compared.
	Agrees *bool `json:"daemon_agrees,omitempty"`
}

// DaemonAgrees reports whether the daemon is known to have counted the same.
func (r *Result) DaemonAgrees() bool { return r.Agrees != nil && *r.Agrees }

// Spread is how a time is distributed.
type Spread struct {
	Requests int     `json:"requests"`
	P50      float64 `json:"p50_us"`
	P90      float64 `json:"p90_us"`
	P99      float64 `json:"p99_us"`
	Max      float64 `json:"max_us"`
}

func spread(l *Latencies) Spread {
	us := func(p float64) float64 { return float64(l.Percentile(p)) / float64(time.Microsecond) }
	return Spread{Requests: l.Len(), P50: us(50), P90: us(90), P99: us(99), Max: us(100)}
}

// OK reports whether every byte was right.
func (r *Result) OK() bool { return r.Mismatches == 0 && r.DiffersBlocks == 0 }

// Tally adds outcomes up. It is not safe for concurrent use.
type Tally struct {
	r      Result
	lookup Latencies
	ready  Latencies
	cold   Latencies
	behind Latencies
	by     map[string]*Latencies // ready, by the farthest tier
}

// NewTally returns an empty Tally.
func NewTally() *Tally {
	return &Tally{by: make(map[string]*Latencies), r: Result{
		HitTokens:    make(map[string]int64),
		HitBlocks:    make(map[string]int64),
		ShortReasons: make(map[string]int),
	}}
}

// Add counts one outcome.
func (t *Tally) Add(o *Outcome) {
	r := &t.r
	r.Requests++
	r.TotalPromptTokens += int64(o.Tokens)
	r.TotalHitTokens += int64(o.Hit.Tokens)
	r.BlockAccesses += int64(o.Chunks)
	r.BlockHits += int64(o.Hit.Chunks)
	for i, n := range o.Tiers {
		r.HitTokens[TierNames[i]] += int64(n.Tokens)
		r.HitBlocks[TierNames[i]] += int64(n.Chunks)
	}
	r.BytesRead += o.ReadBytes
	r.BytesWritten += o.WrittenBytes
	r.NeededBytes += o.NeededBytes
	r.NeededBelow += o.NeededBelow
	r.StoredBlocks += int64(o.Stored)
	r.ExistsBlocks += int64(o.Exists)
	r.PendingBlocks += int64(o.Pending)
	r.RefusedBlocks += int64(o.Refused)
	r.DiffersBlocks += int64(o.Differs)
	r.Mismatches += len(o.Mismatches)
	r.Wrong = append(r.Wrong, o.Mismatches[:min(len(o.Mismatches), maxMismatches-len(r.Wrong))]...)
	switch {
	case o.Revoked:
		r.RevokedRequests++
	case o.Hit.Chunks < o.Matched.Chunks:
		r.ShortRequests++
		r.ShortReasons[o.Reason.String()]++
	}
	if o.Chunks == 0 {
		return // nobody was asked
	}
	t.lookup.Add(o.Lookup)
	t.ready.Add(o.Ready)
	if o.cold() {
		t.cold.Add(o.Ready)
	}
	t.behind.Add(o.Behind)
	if o.Late {
		r.LateRequests++
	}
	far := o.farthest()
	if t.by[far] == nil {
		t.by[far] = new(Latencies)
	}
	t.by[far].Add(o.Ready)
}

// note keeps what request number n hit.
func (t *Tally) note(n int, tokens int64) {
	each := &t.r.PerRequest
	for len(*each) <= n {
		*each = append(*each, 0)
	}
	(*each)[n] = tokens
}

// farthest names the farthest tier that a part of the prefix came from.
func (o *Outcome) farthest() string {
	far := "none"
	for i, n := range o.Tiers {
		if n.Chunks > 0 {
			far = TierNames[i]
		}
	}
	return far
}

// cold reports whether part of the prefix was promoted from a lower tier.
func (o *Outcome) cold() bool { return o.Tiers[1].Chunks+o.Tiers[2].Chunks > 0 }

// Result returns the sums, of work that took the given time.
func (t *Tally) Result(took time.Duration) Result {
	r := t.r
	r.OverallHitRate = ratio(float64(r.TotalHitTokens), float64(r.TotalPromptTokens))
	r.Seconds = took.Seconds()
	r.GBPerSecond = ratio(float64(r.BytesRead+r.BytesWritten)/1e9, r.Seconds)
	r.LookupP50, r.LookupP99 = percentiles(&t.lookup)
	r.ReadyP50, r.ReadyP99 = percentiles(&t.ready)
	r.ColdReadyP50, r.ColdReadyP99 = percentiles(&t.cold)
	r.Behind = spread(&t.behind)
	r.ReadyBy = make(map[string]Spread, len(t.by))
	for name, l := range t.by {
		r.ReadyBy[name] = spread(l)
	}
	return r
}

// percentiles are the median and the 99th, in microseconds.
func percentiles(l *Latencies) (p50, p99 float64) {
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	return us(l.Percentile(50)), us(l.Percentile(99))
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
