package config

import "time"

// Config is everything the daemon can be told. The zero Config is not valid;
// start from [Default].
type Config struct {
	Listen   Listen   `yaml:"listen"`
	Admin    Admin    `yaml:"admin"`
	Chunk    Chunk    `yaml:"chunk"`
	Arena    Arena    `yaml:"arena"`
	CPU      CPU      `yaml:"cpu"`
	Disk     Disk     `yaml:"disk"`
	Remote   Remote   `yaml:"remote"`
	Write    Write    `yaml:"write"`
	Prefetch Prefetch `yaml:"prefetch"`
	Lease    Lease    `yaml:"lease"`
	Pin      Pin      `yaml:"pin"`
	Retain   Retain   `yaml:"retain"`
	Budget   Budget   `yaml:"budget"`
	Limits   Limits   `yaml:"limits"`
	Stop     Stop     `yaml:"stop"`
	Events   Events   `yaml:"events"`
	Spaces   []Space  `yaml:"spaces" reload:"at once"`
	Access   []Access `yaml:"access" reload:"next request"`
	Log      Log      `yaml:"log"`
}

// Chunk is what counts where a client's hello names nothing else.
type Chunk struct {
	// Tokens in a chunk. Fewer find longer prefixes, more move faster.
	Tokens int `yaml:"tokens" range:"1..65536" reload:"new spaces"`
	// How a chunk's key is made of its tokens. xxh64 is faster, but a collision
	// would serve another prompt's KV: for one tenant only.
	Hash string `yaml:"hash" oneof:"sha256,xxh64" reload:"new spaces"`
	// Store the last, shorter chunk of a prompt too.
	SaveUnfull bool `yaml:"save_unfull" reload:"next request"`
}

// The chunk hash methods.
const (
	HashSHA256 = "sha256" // truncated to 128 bits
	HashXXH64  = "xxh64"  // two seeded lanes; trusted single-tenant use only
)

// Arena is the shared memory that payloads lie in.
type Arena struct {
	// One in so many hits in DRAM is hashed again before it is served; 1 checks
	// all of them, 0 none.
	VerifyHits int `yaml:"verify_hits" range:"0..1073741824" reload:"at once"`
}

// Prefetch says how long a prefetch may keep its client waiting.
type Prefetch struct {
	// Policy of a prefetch for a client that names none. timeout loads until the
	// deadline, best_effort answers the first wait with the chunks that are
	// ready, wait_complete loads everything.
	Policy string `yaml:"policy" oneof:"best_effort,wait_complete,timeout" reload:"next request"`
	// How long policy timeout loads; about what recomputing would take.
	Deadline time.Duration `yaml:"deadline" range:">0s" reload:"next request"`
	// Added to the deadline for each 1,024 tokens to promote.
	Per1024Tokens time.Duration `yaml:"per_1024_tokens" range:"0s.." reload:"next request"`
	// Most bytes being read at once for one prompt.
	Window Bytes `yaml:"window" range:"1MiB.." reload:"next request"`
}

// The prefetch policies.
const (
	PrefetchBestEffort   = "best_effort"   // answer with what is ready
	PrefetchWaitComplete = "wait_complete" // answer when all is loaded or failed
	PrefetchTimeout      = "timeout"       // answer by the deadline
)

// Lease bounds how long a client may read the blocks of a lease.
type Lease struct {
	// Age at which a lease is revoked, counted from the grant or the last
	// renewal. An engine that reads longer must renew, or its blocks are reused.
	MaxAge time.Duration `yaml:"max_age" range:">0s" reload:"new connections"`
}

// Pin bounds named protection.
type Pin struct {
	// Longest that a client may protect a prompt from eviction.
	MaxAge time.Duration `yaml:"max_age" range:">0s" reload:"new pins"`
}

// Retain bounds what clients may have kept longer than the policies would. It is
// evicted all the same where there is nothing else: see
// [tenure.md](tenure.md#in-the-daemon).
type Retain struct {
	// Most payload bytes that all clients retain together; 0 is half of
	// cpu.capacity and disk.capacity.
	Total Bytes `yaml:"total" range:"0.." reload:"at once"`
	// Most of these of one user; 0 is half of total.
	UID Bytes `yaml:"uid" range:"0.." reload:"at once"`
	// Longest that a chunk is retained, from when a client said so last.
	MaxDuration time.Duration `yaml:"max_duration" range:">0s..720h" reload:"at once"`
}

// MaxRetain is the largest retain.max_duration, as of the hints that engines carry.
const MaxRetain = 30 * 24 * time.Hour

// Retained is what may be retained, in total and of one user.
func (c *Config) Retained() (total, uid int64) {
	if total = int64(c.Retain.Total); total == 0 {
		total = int64(c.CPU.Capacity+c.Disk.Capacity) / 2
	}
	if uid = int64(c.Retain.UID); uid == 0 {
		uid = total / 2
	}
	return total, uid
}

// Budget holds the shares of cpu.capacity that may be protected from eviction.
// Leases, pins and loads together are at most 0.8.
type Budget struct {
	// Share that engines may be reading or filling.
	Leases float64 `yaml:"leases" range:">0..0.8" reload:"at once"`
	// Share that may be pinned by name.
	Pins float64 `yaml:"pins" range:">0..0.8" reload:"at once"`
	// Share that promotions may protect until they are published; one always may.
	Loads float64 `yaml:"loads" range:">0..0.8" reload:"at once"`
	// Share kept while it waits for the disk; it comes on top of the sum of the
	// other three and yields to them.
	Unwritten float64 `yaml:"unwritten" range:">0..0.8" reload:"at once"`
}

// MaxProtected is the largest share of cpu.capacity that all of Budget may
// protect together; the rest is always evictable, so that puts go on.
const MaxProtected = 0.8

// Space is a quota, a priority, a largest age and what a token costs for the spaces
// whose model it matches. The first rule that matches counts, and its spaces share the
// quota.
type Space struct {
	// The whole model name; * is any run of characters, slashes too, ? any one.
	Match string `yaml:"match"`
	// Most bytes of all spaces under this rule, in DRAM and on disk each.
	// 0, or left out: as much as there is room for.
	Quota Bytes `yaml:"quota" range:"0,64MiB.."`
	// How often a chunk is spared when its turn to be evicted has come. Only
	// beside a quota.
	Priority int `yaml:"priority" range:"0..3"`
	// How long a chunk may stay, in every tier, from when it was stored on, in
	// whole seconds. 0s: for ever.
	MaxAge time.Duration `yaml:"max_age" range:"0s..87600h"`
	// How deep in a prompt the model takes twice as long for a token as for the first
	// one, in tokens: about 30000 for Llama 3 of 8 billion parameters, 53000 for that
	// of 70, 15000 for DeepSeek-V3. For tiers with rank_by: compute.
	PrefillDepth int `yaml:"prefill_depth" range:"1..1000000000"`
}

// Default is a rule that says nothing; a list of rules begins with it for each.
func (Space) Default() any { return Space{PrefillDepth: DefaultPrefillDepth} }

// DefaultPrefillDepth is the prefill_depth of a space under no rule.
const DefaultPrefillDepth = 30_000

// Log is the daemon's own log, on standard error.
type Log struct {
	// Least severe level that is written.
	Level string `yaml:"level" oneof:"trace,debug,info,warn,error" reload:"at once"`
	// auto is console on a terminal and json otherwise.
	Format string `yaml:"format" oneof:"auto,console,json"`
}
