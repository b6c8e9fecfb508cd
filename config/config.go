package config

import (
	"cmp"
	"os"
	"time"
)

// Config is everything the daemon can be told. The zero Config is not valid;
// start from [Default].
type Config struct {
	Listen   Listen   `yaml:"listen"`
	Admin    Admin    `yaml:"admin"`
	Chunk    Chunk    `yaml:"chunk"`
	CPU      CPU      `yaml:"cpu"`
	Disk     Disk     `yaml:"disk"`
	Remote   Remote   `yaml:"remote"`
	Write    Write    `yaml:"write"`
	Prefetch Prefetch `yaml:"prefetch"`
	Lease    Lease    `yaml:"lease"`
	Retain   Retain   `yaml:"retain"`
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
	// How keys are made of tokens. xxh64 is faster, but a collision would serve another
	// prompt's KV: for one tenant only.
	Hash string `yaml:"hash" oneof:"sha256,xxh64" reload:"new spaces"`
	// Store the last, shorter chunk of a prompt too.
	SaveUnfull bool `yaml:"save_unfull" reload:"next request"`
}

// The chunk hash methods.
const (
	HashSHA256 = "sha256" // truncated to 128 bits
	HashXXH64  = "xxh64"  // two seeded lanes; trusted single-tenant use only
)

// Prefetch says how long a prefetch may keep its client waiting.
type Prefetch struct {
	// timeout loads until the deadline, best_effort answers with what is ready, wait_complete
	// loads everything.
	Policy string `yaml:"policy" oneof:"best_effort,wait_complete,timeout" reload:"next request"`
	// How long timeout loads; about what computing would take.
	Deadline time.Duration `yaml:"deadline" range:">0s" reload:"next request"`
	// Added to the deadline for each 1,024 tokens to promote.
	Per1024Tokens time.Duration `yaml:"per_1024_tokens" range:"0s.." reload:"next request"`
}

// The prefetch policies.
const (
	PrefetchBestEffort   = "best_effort"   // answer with what is ready
	PrefetchWaitComplete = "wait_complete" // answer when all is loaded or failed
	PrefetchTimeout      = "timeout"       // answer by the deadline
)

// Lease bounds how long a client may read the blocks of a lease.
type Lease struct {
	// Age at which a lease is revoked, since the grant or the last renewal.
	MaxAge time.Duration `yaml:"max_age" range:">0s" reload:"new connections"`
}

// Retain bounds what clients may have [kept longer](../eviction.md#retained) than the
// policies would.
type Retain struct {
	// Most bytes that all clients retain; 0 is half of cpu.capacity and disk.capacity.
	Total Bytes `yaml:"total" range:"0.." reload:"at once"`
	// Most of these of one user; 0 is half of total.
	UID Bytes `yaml:"uid" range:"0.." reload:"at once"`
}

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

// Space is a rule for the spaces whose model it matches: see [tenants](../run/tenants.md).
// The first that matches counts.
type Space struct {
	// The whole model name; * is any run of characters, slashes too, ? any one.
	Match string `yaml:"match"`
	// Most bytes of all spaces under the rule, in DRAM and on disk each; 0 is no bound.
	Quota Bytes `yaml:"quota" range:"0,64MiB.."`
	// How long a chunk may stay, in every tier; 0s is for ever.
	MaxAge time.Duration `yaml:"max_age" range:"0s..87600h"`
	// How deep in a prompt a token takes twice as long as the first: about 30000 for Llama 3
	// of 8 billion parameters, 53000 for 70, 15000 for DeepSeek-V3. tenure then weighs chunks
	// by their compute; 0 is by their tokens.
	PrefillDepth int `yaml:"prefill_depth" range:"0..1000000000"`
}

// Log is the daemon's own log, on standard error.
type Log struct {
	// Least severe level that is written.
	Level string `yaml:"level" oneof:"trace,debug,info,warn,error" reload:"at once"`
	// auto is console on a terminal and json otherwise.
	Format string `yaml:"format" oneof:"auto,console,json"`
}

// Stop bounds the end of the daemon.
type Stop struct {
	// Longest to write at SIGTERM what only DRAM has, most used first. The end takes up to 5s
	// more.
	Flush time.Duration `yaml:"flush" range:"0s..1h" reload:"at the stop"`
}

// Events is how routers are told what the daemon has: see [events](../events.md).
type Events struct {
	// Tell what the tiers come to have and lose.
	Enabled bool `yaml:"enabled"`
}

// Listen is where clients connect, and who may.
type Listen struct {
	// Absolute path of the Unix socket that engines connect to, at most 106 bytes.
	Socket string `yaml:"socket"`
	// Permissions of the sockets, in octal. Connecting takes write permission.
	Mode os.FileMode `yaml:"mode"`
	// Their group, by name or number; "" is the daemon's own.
	Group string `yaml:"group"`
	// User ids that may connect, to front ends too; [] is every user that the mode admits.
	AllowUIDs []uint32 `yaml:"allow_uids,flow" reload:"at once"`
	// User ids that may administer, besides root and the daemon's own user.
	AdminUIDs []uint32 `yaml:"admin_uids,flow" reload:"next request"`
	// Where [Redis clients](../resp.md) connect: paths of sockets and host:port; [] turns the
	// front end off.
	RESP []string `yaml:"resp,flow"`
	// File whose first line is the password of Redis clients over TCP; needed for addresses
	// that other machines reach.
	RESPPasswordFile string `yaml:"resp_password_file" reload:"next login"`
	// What becomes of a value that cannot be kept: with drop a later miss, with error an error
	// as Redis's.
	RESPFull string `yaml:"resp_full" oneof:"drop,error" reload:"new connections"`
}

// What becomes of a Redis client's value that cannot be kept.
const (
	RESPFullDrop  = "drop"  // it is dropped, and the old one with it; only clients that sent HELLO or CLIENT are told
	RESPFullError = "error" // an error, and the old one stays
)

// Limits bound what clients cost outside the arena: see [bounds](../guarantees.md#bounds).
type Limits struct {
	// What all clients may cost; 0 is derived, as `kvstored check` prints.
	Memory Bytes `yaml:"memory" range:"0,256MiB.."`
	// Connections of all clients; 16 are for administrators.
	Connections int `yaml:"connections" range:"64..65534"`
	// Connections of one user, or of one host over TCP; 0 is half.
	UIDConnections int `yaml:"uid_connections" range:"0.."`
}

const (
	// LeastMemory is the least that limits.memory may be: one payload of the
	// largest size is held twice while it is answered, and so for two clients.
	LeastMemory = 256 * mib
	// AdminConnections of limits.connections are for administrators only.
	AdminConnections = 16
)

// OfOneUser is how many connections one user may have.
func (l *Limits) OfOneUser() int { return cmp.Or(l.UIDConnections, l.Connections/2) }
