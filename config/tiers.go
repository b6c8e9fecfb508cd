package config

import "time"

// CPU is the DRAM tier.
type CPU struct {
	// Bytes of shared memory, all taken at start.
	Capacity Bytes `yaml:"capacity" range:"16MiB.."`
	// Which chunk is evicted first: see [eviction](../eviction.md).
	Policy string `yaml:"policy" oneof:"lru,lfu,fifo,mru,arc,s3fifo,tenure" reload:"at once"`
	// auto takes huge pages where there are some; on fails without.
	HugePages string `yaml:"hugepages" oneof:"auto,on,off"`
	// Lock the memory, so that it is never swapped; takes RLIMIT_MEMLOCK.
	MLock bool `yaml:"mlock"`
	// Have the next start find DRAM and the sockets again, where systemd or serve --keeper
	// holds them. [Security](../security.md#keeping-dram) says what it trades.
	Keep bool `yaml:"keep"`
}

// KeeperSocket is where serve --keeper listens.
func (c *Config) KeeperSocket() string { return c.Listen.Socket + ".keep" }

// Huge pages under the arena.
const (
	HugePagesAuto = "auto" // use them where the kernel gives them
	HugePagesOn   = "on"   // not getting them is an error
	HugePagesOff  = "off"
)

// Disk is the local disk tier. Its entries survive restarts.
type Disk struct {
	// Absolute folders on local file systems, one for each disk, filled in proportion to free
	// room.
	Paths []string `yaml:"paths,flow"`
	// Absolute folder of the database; "" is the first path.
	Meta string `yaml:"meta"`
	// Most bytes of all files below paths, database included; 0 turns the tier off.
	Capacity Bytes `yaml:"capacity" range:"0,64MiB.."`
	// As cpu.policy.
	Policy string `yaml:"policy" oneof:"lru,lfu,fifo,mru,arc,s3fifo,tenure" reload:"at once"`
	// Bytes left free on each file system for others; segments are given back for it.
	MinFree Bytes `yaml:"min_free" range:"0.." reload:"within seconds"`
	// Bytes written a day, in bursts of up to an hour's share; 0 is no limit.
	WriteBudget Bytes `yaml:"write_budget" range:"0.." reload:"at once"`
	// Bytes a second read in the background to find bit rot; 0 is none.
	ScrubRate Bytes `yaml:"scrub_rate" range:"0.." reload:"next pass"`
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

// S3 is an object store: see [a bucket](../run/bucket.md).
type S3 struct {
	// Name of the bucket, 3 to 63 characters; "" turns the tier off.
	Bucket string `yaml:"bucket"`
	// Start of every object's name.
	Prefix string `yaml:"prefix"`
	// URL of a store other than Amazon's.
	Endpoint string `yaml:"endpoint"`
	// Region that requests are signed for.
	Region string `yaml:"region"`
	// Put the bucket into the path; most stores other than Amazon's want true.
	PathStyle bool `yaml:"path_style"`
	// Profile of the shared credentials file.
	Profile string `yaml:"profile"`
	// Most reads in flight, and half as many writes.
	Concurrency int `yaml:"concurrency" range:"1..4096"`
	// Longest that one request may take; a slower one is a miss.
	Timeout time.Duration `yaml:"timeout" range:">0s"`
	// Age at which an object counts as absent; 0s is never.
	TTL time.Duration `yaml:"ttl" range:"0s.."`
	// Read all names at start, one request for each 1,000, and ask less later.
	List bool `yaml:"list"`
}

// Enabled reports whether there is a remote tier at all.
func (s *S3) Enabled() bool { return s.Bucket != "" }

// Write says when chunks are written to the tiers below DRAM; a bucket is never full.
type Write struct {
	// through writes after every commit, auto too until the disk is full, and then when DRAM
	// evicts.
	Mode string `yaml:"mode" oneof:"auto,through"`
	// With auto, longest that a chunk is in DRAM only, over a full disk; 0s is for ever. A
	// kill costs these chunks.
	UnsafeAge time.Duration `yaml:"unsafe_age" range:"0,1s.." reload:"at once"`
}

// The write modes.
const (
	WriteAuto    = "auto"    // as WriteThrough while the disk has room for all, then when DRAM evicts a chunk
	WriteThrough = "through" // after every commit
)
