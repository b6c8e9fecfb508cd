package config

import (
	"os"
	"time"
)

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
	Budget   Budget   `yaml:"budget"`
	Limits   Limits   `yaml:"limits"`
	Stop     Stop     `yaml:"stop"`
	Spaces   []Space  `yaml:"spaces" reload:"live"`
	Access   []Access `yaml:"access" reload:"live"`
	Log      Log      `yaml:"log"`
}

// Listen is where clients connect and who may.
type Listen struct {
	Socket    string      `yaml:"socket"`                        // absolute path of the Unix socket
	Mode      os.FileMode `yaml:"mode"`                          // of the socket; permission bits only
	Group     string      `yaml:"group"`                         // owning group, name or number; "" = the daemon's own
	AllowUIDs []uint32    `yaml:"allow_uids,flow" reload:"live"` // empty = whoever the mode admits
	AdminUIDs []uint32    `yaml:"admin_uids,flow" reload:"live"` // besides root and the daemon's own user
	RESP      []string    `yaml:"resp,flow"`                     // where the Redis front end listens: socket paths and host:port; empty = off
	// RESPPasswordFile holds, in its first line, the password that the Redis
	// front end asks for over TCP; "" = none.
	RESPPasswordFile string `yaml:"resp_password_file" reload:"live"`
	RESPFlush        bool   `yaml:"resp_flush" reload:"live"` // FLUSHDB and FLUSHALL work
	RESPFull         string `yaml:"resp_full" reload:"live"`  // RESPFullDrop or RESPFullError
	LM               string `yaml:"lm"`                       // where the LMCache front end listens: socket path or host:port; "" = off
	LMOpen           bool   `yaml:"lm_open"`                  // LM may be an address that other machines reach, though its clients give no password
}

// What becomes of a Redis client's value that cannot be kept.
const (
	RESPFullDrop  = "drop"  // it is dropped, and the old one with it; only clients that sent HELLO or CLIENT are told
	RESPFullError = "error" // an error, and the old one stays
)

// Admin is the HTTP listener for metrics and health.
type Admin struct {
	Listen string `yaml:"listen"` // host:port; "" = off
}

// Chunk holds what counts where a client's hello says nothing.
type Chunk struct {
	Tokens     int    `yaml:"tokens" reload:"live"`      // per chunk
	Hash       string `yaml:"hash" reload:"live"`        // HashSHA256 or HashXXH64
	SaveUnfull bool   `yaml:"save_unfull" reload:"live"` // store a prompt's last, shorter chunk too
}

// The chunk hash methods.
const (
	HashSHA256 = "sha256" // truncated to 128 bits
	HashXXH64  = "xxh64"  // two seeded lanes; trusted single-tenant use only
)

// Arena is the shared memory that payloads lie in.
type Arena struct {
	Puts       string        `yaml:"puts"`                      // PutsStaged or PutsDirect
	VerifyHits int           `yaml:"verify_hits" reload:"live"` // one in so many DRAM hits is hashed again before it is leased; 0 = none
	Spin       time.Duration `yaml:"spin"`                      // longest busy wait for a client's next frame; 0 = none
}

// How clients write payloads.
const (
	PutsStaged = "staged" // through a window of their own; the arena is read-only to them
	PutsDirect = "direct" // into the arena: trusts every client's memory safety
)

// CPU is the DRAM tier.
type CPU struct {
	Capacity      Bytes   `yaml:"capacity"` // of the arena; touched at start
	Policy        string  `yaml:"policy" reload:"live"`
	HighWatermark float64 `yaml:"high_watermark" reload:"live"` // share of capacity above which eviction starts
	LowWatermark  float64 `yaml:"low_watermark" reload:"live"`  // share of capacity it evicts down to
	HugePages     string  `yaml:"hugepages"`                    // HugePagesAuto, HugePagesOn or HugePagesOff
	MLock         bool    `yaml:"mlock"`                        // lock the arena into memory; failing to is an error
	Learned       string  `yaml:"learned"`                      // folder for what the policy has learned; "" = that of the disk's database
}

// LearnedPath is where what the policy of DRAM has learned is kept over a
// restart; "" is nowhere.
func (c *Config) LearnedPath() string {
	if c.CPU.Learned != "" || !c.Disk.Enabled() {
		return c.CPU.Learned
	}
	return c.Disk.MetaPath()
}

// Huge pages under the arena.
const (
	HugePagesAuto = "auto" // use them where the kernel gives them
	HugePagesOn   = "on"   // not getting them is an error
	HugePagesOff  = "off"
)

// Disk is the local disk tier.
type Disk struct {
	Paths         []string      `yaml:"paths,flow"`                   // absolute folders
	Meta          string        `yaml:"meta"`                         // folder of the database; "" = the first path
	Capacity      Bytes         `yaml:"capacity"`                     // over all paths, database included; 0 = no disk tier
	Policy        string        `yaml:"policy" reload:"live"`         //
	HighWatermark float64       `yaml:"high_watermark" reload:"live"` // share of capacity above which eviction starts
	LowWatermark  float64       `yaml:"low_watermark" reload:"live"`  // share of capacity it evicts down to
	MinFree       Bytes         `yaml:"min_free" reload:"live"`       // left free on the file system for others
	InlineMax     Bytes         `yaml:"inline_max"`                   // payloads up to this size live in the database
	SegmentSize   Bytes         `yaml:"segment_size"`                 // of one extent file
	WriteBudget   Bytes         `yaml:"write_budget" reload:"live"`   // per day, against wear; 0 = unlimited
	ScrubRate     Bytes         `yaml:"scrub_rate" reload:"live"`     // per second read to find bit rot; 0 = off
	IOTimeout     time.Duration `yaml:"io_timeout"`                   // after which a read counts as failed
	IODepth       int           `yaml:"io_depth"`                     // pieces of I/O under way at once in each path; 0 = found by a probe
}

// Enabled reports whether there is a disk tier at all.
func (d *Disk) Enabled() bool { return d.Capacity > 0 }

// MetaPath is the folder of the database.
func (d *Disk) MetaPath() string {
	if d.Meta == "" && len(d.Paths) > 0 {
		return d.Paths[0]
	}
	return d.Meta
}

// Remote is the tier that many machines share.
type Remote struct {
	S3 S3 `yaml:"s3"`
}

// S3 is an object store. Credentials come from the profile or the
// environment, never from this file.
type S3 struct {
	Bucket      string        `yaml:"bucket"` // "" = no remote tier
	Prefix      string        `yaml:"prefix"` // of every object name
	Endpoint    string        `yaml:"endpoint"`
	Region      string        `yaml:"region"`
	PathStyle   bool          `yaml:"path_style"`
	Profile     string        `yaml:"profile"`
	Concurrency int           `yaml:"concurrency"` // reads in flight; half as many writes
	Flight      Bytes         `yaml:"flight"`      // payload bytes of reads in flight; half as many of writes
	Timeout     time.Duration `yaml:"timeout"`     // of one request
	TTL         time.Duration `yaml:"ttl"`         // age at which objects count as absent; 0 = never
	List        bool          `yaml:"list"`        // read the names of all objects at start
}

// Enabled reports whether there is a remote tier at all.
func (s *S3) Enabled() bool { return s.Bucket != "" }

// Write says when chunks go down to the disk tier.
type Write struct {
	Mode    string `yaml:"mode"`                // WriteThrough, WriteSelective or WriteBack
	MinHits int    `yaml:"min_hits"`            // for WriteSelective
	Queue   Bytes  `yaml:"queue" reload:"live"` // most bytes waiting to be written
}

// The write modes.
const (
	WriteThrough   = "through"   // after every commit
	WriteSelective = "selective" // after min_hits hits
	WriteBack      = "back"      // when DRAM evicts it
)

// Prefetch says how long a prefetch may keep its client waiting.
type Prefetch struct {
	Policy        string        `yaml:"policy" reload:"live"`          // BestEffort, WaitComplete or Timeout
	Deadline      time.Duration `yaml:"deadline" reload:"live"`        // for Timeout
	Per1024Tokens time.Duration `yaml:"per_1024_tokens" reload:"live"` // for Timeout: more time for longer prompts
	Window        Bytes         `yaml:"window" reload:"live"`          // most bytes in flight per job
	NextTurn      Bytes         `yaml:"next_turn" reload:"live"`       // most bytes of a prompt that has grown to bring up for its next turn; 0 = none
}

// The prefetch policies.
const (
	PrefetchBestEffort   = "best_effort"   // answer with what is ready
	PrefetchWaitComplete = "wait_complete" // answer when all is loaded or failed
	PrefetchTimeout      = "timeout"       // answer by the deadline
)

// Lease bounds how long a client may read what it was given.
type Lease struct {
	MaxAge time.Duration `yaml:"max_age" reload:"live"` // from grant or renewal to revocation
}

// Pin bounds named protection.
type Pin struct {
	MaxAge time.Duration `yaml:"max_age" reload:"live"`
}

// Budget holds shares of cpu.capacity that may be protected from eviction.
type Budget struct {
	Leases    float64 `yaml:"leases" reload:"live"` // read leases and fills
	Pins      float64 `yaml:"pins" reload:"live"`
	Loads     float64 `yaml:"loads" reload:"live"`     // prefetches coming up
	Unwritten float64 `yaml:"unwritten" reload:"live"` // waiting for the disk
}

// MaxProtected is the largest share of cpu.capacity that all of Budget may
// protect together; the rest is always evictable, so that puts go on.
const MaxProtected = 0.8

// Space is a rule for the spaces whose name it matches.
type Space struct {
	Match    string `yaml:"match"`    // the whole model name; * is any run of characters, ? any one
	Quota    Bytes  `yaml:"quota"`    // of all spaces that match first here, in each of DRAM and disk
	Priority int    `yaml:"priority"` // how often a chunk is spared when it would go, 0 to 3
}

// Log is the daemon's own log, on standard error.
type Log struct {
	Level  string `yaml:"level" reload:"live"` // trace, debug, info, warn or error
	Format string `yaml:"format"`              // auto, console or json
}
