package demo

import (
	"slices"
	"time"
)

// Result is what demo --json prints.
type Result struct {
	Users        int     `json:"users"`
	Turns        int     `json:"turns"`
	SystemTokens int     `json:"system_prompt_tokens"`
	ChunkTokens  int     `json:"chunk_tokens"`
	PayloadBytes int     `json:"payload_bytes"`
	DRAMBytes    int64   `json:"dram_bytes"`
	Seconds      float64 `json:"seconds"`
	Total        Sums    `json:"total"`
	Before       Sums    `json:"before_restart"`
	After        Sums    `json:"after_restart"`
	Restart      Restart `json:"restart"`
	Saved        Saved   `json:"saved"`
}

// Restart is what stopping and starting the daemon took and brought.
type Restart struct {
	StopSeconds  float64 `json:"stop_seconds"` // with everything unwritten written
	StartSeconds float64 `json:"start_seconds"`
	ChunksBack   int64   `json:"chunks_back"` // known again, from disk alone
	BytesBack    int64   `json:"bytes_back"`
}

// Saved is what the hits were worth, at an assumed speed.
type Saved struct {
	Tokens                 int64   `json:"tokens"`
	PrefillTokensPerSecond float64 `json:"assumed_prefill_tokens_per_second"`
	PrefillSeconds         float64 `json:"prefill_seconds"`
	WaitedSeconds          float64 `json:"waited_seconds"` // for prefixes to be ready
}

// TierNames are the tiers that prompts are found in, as the protocol has them.
var TierNames = [...]string{"cpu", "disk", "remote"}

// maxTimes is how many prompts percentiles are of, at most: the first ones.
const maxTimes = 1 << 20

// Sums are of some prompts.
type Sums struct {
	Requests     int              `json:"requests"`
	PromptTokens int64            `json:"total_prompt_tokens"`
	PromptChunks int64            `json:"block_accesses"`
	HitTokens    int64            `json:"total_hit_tokens"` // of verified prefixes
	HitChunks    int64            `json:"block_hits"`
	TierTokens   map[string]int64 `json:"hit_tokens"` // by the tier they were found in
	TierChunks   map[string]int64 `json:"hit_blocks"`
	Wrong        int64            `json:"mismatches"` // chunks with a wrong byte
	Stored       int64            `json:"stored_blocks"`
	BytesRead    int64            `json:"bytes_read"` // compared
	BytesWritten int64            `json:"bytes_written"`
	Seconds      float64          `json:"seconds"`
	GBPerSecond  float64          `json:"gb_per_second"` // read and written, 10^9 bytes
	LookupP50    float64          `json:"lookup_p50_us"`
	LookupP99    float64          `json:"lookup_p99_us"`
	ReadyP50     float64          `json:"ready_p50_us"`
	ReadyP99     float64          `json:"ready_p99_us"`

	waited         time.Duration
	lookups, ready []time.Duration
}

func newSums() Sums {
	return Sums{TierTokens: make(map[string]int64), TierChunks: make(map[string]int64)}
}

// OK reports whether every byte was right.
func (s *Sums) OK() bool { return s.Wrong == 0 }

func (s *Sums) add(p *played) {
	s.Requests++
	s.PromptTokens += int64(p.tokens)
	s.PromptChunks += int64(p.chunks)
	for i, n := range p.tiers {
		s.HitTokens += int64(n.Tokens)
		s.HitChunks += int64(n.Chunks)
		s.TierTokens[TierNames[i]] += int64(n.Tokens)
		s.TierChunks[TierNames[i]] += int64(n.Chunks)
	}
	s.Wrong += int64(p.wrong)
	s.Stored += int64(p.stored)
	s.BytesRead += int64(p.read) * PayloadBytes
	s.BytesWritten += int64(p.stored) * PayloadBytes
	s.waited += p.ready
	if len(s.lookups) < maxTimes {
		s.lookups, s.ready = append(s.lookups, p.lookup), append(s.ready, p.ready)
	}
}

// finish fills in what follows from all prompts and the time that they took.
func (s *Sums) finish(took time.Duration) {
	s.Seconds = took.Seconds()
	s.GBPerSecond = float64(s.BytesRead+s.BytesWritten) / 1e9 / max(s.Seconds, 1e-9)
	s.LookupP50, s.LookupP99 = percentiles(s.lookups)
	s.ReadyP50, s.ReadyP99 = percentiles(s.ready)
}

// percentiles are the median and the 99th, in microseconds. It sorts the times.
func percentiles(times []time.Duration) (p50, p99 float64) {
	if len(times) == 0 {
		return 0, 0
	}
	slices.Sort(times)
	at := func(i int) float64 { return float64(times[i]) / float64(time.Microsecond) }
	return at((len(times) - 1) / 2), at((len(times) - 1) * 99 / 100)
}
