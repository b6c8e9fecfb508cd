package simulate

// Row is what one policy made of a trace at one capacity.
type Row struct {
	Policy            string  `json:"policy"`
	CapacityBlocks    int     `json:"capacity_blocks"`
	Requests          int     `json:"requests"`
	TotalPromptTokens int64   `json:"total_prompt_tokens"`
	TotalHitTokens    int64   `json:"total_hit_tokens"` // of the prefixes that were resident when their request arrived
	OverallHitRate    float64 `json:"overall_hit_rate"` // TotalHitTokens / TotalPromptTokens
	FinalCacheBlocks  int     `json:"final_cache_blocks"`
	BlockAccesses     int     `json:"block_accesses"`
	BlockHits         int     `json:"block_hits"` // in a prefix or not
	BlockMisses       int     `json:"block_misses"`
	// OverallComputeRate is the share of all prefill compute that the hits spare:
	// a token at depth p weighs 1 + p/Options.PrefillDepth.
	OverallComputeRate float64 `json:"overall_compute_rate"`
	// PerRequest has the hit tokens of each request, where Options.PerRequest asks
	// for them. Their sum is TotalHitTokens.
	PerRequest []int64 `json:"per_request,omitempty"`
}

// score adds up what the requests of a trace hit.
type score struct {
	tokens          int64
	computed, total float64
	depth           float64
	each            []int64
}

// newScore keeps the hits of each request if that is asked for.
func newScore(depth float64, requests int, each bool) *score {
	s := &score{depth: depth}
	if each {
		s.each = make([]int64, 0, requests)
	}
	return s
}

// add is one request of so many tokens, of which so many hit.
func (s *score) add(hit, tokens int) {
	s.tokens += int64(hit)
	s.computed += s.compute(hit)
	s.total += s.compute(tokens)
	if s.each != nil {
		s.each = append(s.each, int64(hit))
	}
}

// take fills in what a score has of all requests.
func (r *Row) take(s *score) {
	r.TotalHitTokens, r.PerRequest = s.tokens, s.each
	r.OverallHitRate = float64(s.tokens) / float64(r.TotalPromptTokens)
	r.OverallComputeRate = s.computed / s.total
}

// compute is the cost of computing the first n tokens of a prompt.
func (s *score) compute(n int) float64 { return float64(n) + float64(n)*float64(n)/(2*s.depth) }
