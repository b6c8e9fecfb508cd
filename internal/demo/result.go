package demo

import (
	"github.com/kvstored/kvstored/internal/replay"
)

// RestartWindow is how many prompts on each side of a restart are compared.
const RestartWindow = 24

// Result is what demo --json prints.
type Result struct {
	Users        int           `json:"users"`
	Turns        int           `json:"turns"`
	SystemTokens int           `json:"system_prompt_tokens"`
	ChunkTokens  int           `json:"chunk_tokens"`
	PayloadBytes int           `json:"payload_bytes"`
	DRAMBytes    int64         `json:"dram_bytes"`
	Seconds      float64       `json:"seconds"`
	Total        replay.Result `json:"total"`
	Before       replay.Result `json:"before_restart"`
	After        replay.Result `json:"after_restart"`
	Restart      Restart       `json:"restart"`
	Saved        Saved         `json:"saved"`
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
