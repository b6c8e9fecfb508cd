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
}
