package config

import "time"

// CPU is the DRAM tier.
type CPU struct {
	// Bytes of shared memory, all taken at start; at most what the machine or the
	// container has.
	Capacity Bytes `yaml:"capacity" range:"16MiB.."`
	// Which chunk is evicted first. tenure learns: see [eviction.md](eviction.md).
	Policy string `yaml:"policy" oneof:"lru,lfu,fifo,mru,arc,s3fifo,tenure" reload:"at once"`
	// What tenure weighs chunks by: the tokens in them, or what these take to
	// compute, for which one deep in a prompt counts more: see spaces[].prefill_depth.
	RankBy string `yaml:"rank_by" oneof:"tokens,compute" reload:"at once"`
	// Share of capacity above which eviction starts, ahead of the puts that will
	// need the room.
	HighWatermark float64 `yaml:"high_watermark" range:">0..1" reload:"next eviction"`
	// Share of capacity that eviction goes down to; below high_watermark.
	LowWatermark float64 `yaml:"low_watermark" range:">0" reload:"next eviction"`
	// auto takes huge pages where the kernel gives them, on fails without them.
	HugePages string `yaml:"hugepages" oneof:"auto,on,off"`
	// Lock the memory, so that it is never swapped; takes RLIMIT_MEMLOCK.
	MLock bool `yaml:"mlock"`
	// Absolute folder in which what policy tenure has learned survives a restart;
	// "" is disk.meta, and without a disk tier nowhere.
	Learned string `yaml:"learned"`
	// Have the next start find DRAM and the sockets again, after a stop, a crash or a kill,
	// where systemd or serve --keeper has kept them. The arena lacks a seal then, so that
	// root, and the daemon's own user, could write it: see
	// [security.md](security.md#keeping-dram).
	Keep bool `yaml:"keep"`
}

// KeeperSocket is where serve --keeper listens.
func (c *Config) KeeperSocket() string { return c.Listen.Socket + ".keep" }

// What policies that know costs weigh chunks by.
const (
	RankByTokens  = "tokens"
	RankByCompute = "compute"
)

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

// Disk is the local disk tier. Its entries survive restarts.
type Disk struct {
	// Absolute folders on local file systems, one for each disk. They are filled
	// in proportion to their free room.
	Paths []string `yaml:"paths,flow"`
	// Absolute folder of the database, on which all paths depend; "" is the first
	// path.
	Meta string `yaml:"meta"`
	// Most bytes of all files below paths, database included; at least one
	// segment; 0 turns the disk tier off.
	Capacity Bytes `yaml:"capacity" range:"0.."`
	// As cpu.policy.
	Policy string `yaml:"policy" oneof:"lru,lfu,fifo,mru,arc,s3fifo,tenure" reload:"at once"`
	// As cpu.rank_by.
	RankBy string `yaml:"rank_by" oneof:"tokens,compute" reload:"at once"`
	// As cpu.high_watermark.
	HighWatermark float64 `yaml:"high_watermark" range:">0..1" reload:"next eviction"`
	// As cpu.low_watermark.
	LowWatermark float64 `yaml:"low_watermark" range:">0" reload:"next eviction"`
	// Bytes left free on each file system for others. Where these take more,
	// whole segments are given back.
	MinFree Bytes `yaml:"min_free" range:"0.." reload:"within seconds"`
	// Payloads up to this size lie in the database, larger ones in extent files.
	InlineMax Bytes `yaml:"inline_max" range:"0..64KiB"`
	// Bytes of one preallocated extent file, a multiple of 4KiB. A payload takes
	// 4KiB more for its header, so 64MiB keeps those above 65532KiB off the disk.
	SegmentSize Bytes `yaml:"segment_size" range:"64MiB.."`
	// Bytes written a day, against wear, in bursts of up to an hour's share; 0 is
	// no limit.
	WriteBudget Bytes `yaml:"write_budget" range:"0.." reload:"at once"`
	// Bytes a second read in the background to find bit rot; 0 turns it off.
	ScrubRate Bytes `yaml:"scrub_rate" range:"0.." reload:"next pass"`
	// Longest that a read may take; a slower one counts as a miss.
	IOTimeout time.Duration `yaml:"io_timeout" range:">0s"`
	// Requests of 1 MiB under way at once in each path; 0 is 2 to 4, as a probe of
	// half a second finds when the path is new.
	IODepth int `yaml:"io_depth" range:"0..64"`
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
	// Name of the bucket, 3 to 63 characters; "" turns the remote tier off. See
	// [s3-layout.md](s3-layout.md).
	Bucket string `yaml:"bucket"`
	// Start of every object's name, so that a bucket can be shared.
	Prefix string `yaml:"prefix"`
	// URL of a store other than Amazon's.
	Endpoint string `yaml:"endpoint"`
	// Region that requests are signed for.
	Region string `yaml:"region"`
	// Put the bucket into the path instead of the host name; most stores other
	// than Amazon's want true.
	PathStyle bool `yaml:"path_style"`
	// Profile of the shared credentials file; credentials never stand here.
	Profile string `yaml:"profile"`
	// Most reads in flight, and half as many writes.
	Concurrency int `yaml:"concurrency" range:"1..4096"`
	// Most payload bytes of reads in flight, and half as many of writes.
	Flight Bytes `yaml:"flight" range:"1MiB.."`
	// Longest that one request may take; a slower one counts as a miss.
	Timeout time.Duration `yaml:"timeout" range:">0s"`
	// Age at which an object counts as absent; 0s is never.
	TTL time.Duration `yaml:"ttl" range:"0s.."`
	// Read the names of all objects at start: one request for each 1,000, and
	// fewer for each lookup later.
	List bool `yaml:"list"`
}

// Enabled reports whether there is a remote tier at all.
func (s *S3) Enabled() bool { return s.Bucket != "" }

// Write says when chunks are written to the disk tier.
type Write struct {
	// through writes after every commit, back when DRAM evicts the chunk, auto as
	// through until the disk is full and then as back, selective after min_hits hits.
	Mode string `yaml:"mode" oneof:"auto,through,back,selective"`
	// For mode auto: longest that a chunk of a full disk's queue is in DRAM only; 0s is
	// for ever. A kill costs these chunks.
	UnsafeAge time.Duration `yaml:"unsafe_age" range:"0s.." reload:"at once"`
	// For mode selective: hits before a chunk is worth writing.
	MinHits int `yaml:"min_hits" range:"1..1048576"`
	// Most bytes waiting to be written; beyond it chunks stay in DRAM only.
	Queue Bytes `yaml:"queue" range:"1MiB.." reload:"at once"`
}

// The write modes.
const (
	WriteAuto      = "auto"      // as WriteThrough while the disk has room for all, then as WriteBack
	WriteThrough   = "through"   // after every commit
	WriteSelective = "selective" // after min_hits hits
	WriteBack      = "back"      // when DRAM evicts it
)
