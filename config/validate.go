package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxSocketPath is sockaddr_un's sun_path less its final zero, and less the
	// byte more of the name that a socket has until it is moved into place.
	maxSocketPath = 106
	// maxPayload is the largest chunk there may be; each size that must hold
	// one chunk is at least as large.
	maxPayload = 64 * mib

	// maxPriority is the most that spaces[].priority can be.
	maxPriority = 3
	// maxPrefillDepth is the most that spaces[].prefill_depth can be.
	maxPrefillDepth = 1_000_000_000
	// maxAge is the most that spaces[].max_age can be: ten years.
	maxAge = 10 * 365 * 24 * time.Hour
	// maxIODepth is far beyond what any device gains from requests of 1 MiB.
	maxIODepth = 64
)

// Validate checks c against rules and reports every problem, as [Errors].
// Load has done so already.
func (c *Config) Validate(rules Rules) error {
	return check(c, rules, func(string) bool { return true }).sorted()
}

// checker collects the problems of one configuration.
type checker struct {
	*Config
	rules Rules
	meant func(path string) bool // false: the value there is not worth a word
	taken []string               // addresses
	errs  Errors
}

func check(c *Config, rules Rules, meant func(path string) bool) Errors {
	k := checker{Config: c, rules: rules, meant: meant}
	k.listen()
	k.formats()
	k.cpu()
	k.disk()
	k.remote()
	k.flows()
	k.budget()
	k.limits()
	k.stop()
	k.spaces()
	k.access()
	return k.errs
}

func (c *checker) fail(path, format string, args ...any) {
	if !c.meant(path) {
		return
	}
	c.errs = append(c.errs, &Error{Path: path, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) oneOf(path, value string, known ...string) {
	if !slices.Contains(known, value) {
		want := strings.Join(known, ", ")
		if i := strings.LastIndex(want, ", "); i >= 0 {
			want = want[:i] + " or " + want[i+2:]
		}
		c.fail(path, "want %s, not %q%s", want, value, valuesLeft[value])
	}
}

func (c *checker) size(path string, value, least Bytes) {
	if value < least {
		c.fail(path, "%v is too small; the least is %v", value, least)
	}
}

func (c *checker) positive(path string, value time.Duration) {
	if value <= 0 {
		c.fail(path, "want a duration above 0s, not %s", durationText(value))
	}
}

func (c *checker) between(path string, value, least, most int) {
	if value < least || value > most {
		c.fail(path, "want a number from %d to %d, not %d", least, most, value)
	}
}

// absolute wants an absolute path, because a relative one would depend on where
// the daemon happened to be started.
func (c *checker) absolute(path, value string) {
	switch {
	case strings.ContainsRune(value, 0):
		c.fail(path, "contains a zero byte; remove it")
	case !filepath.IsAbs(value):
		c.fail(path, "want an absolute path, not %q", value)
	}
}

func (c *checker) policy(path, value string) {
	if c.rules.Policies != nil {
		c.oneOf(path, value, c.rules.Policies...)
	}
}

func (c *checker) listen() {
	c.socket("listen.socket", c.Listen.Socket)
	c.mode("listen.mode", c.Listen.Mode)
	c.group("listen.group", c.Listen.Group)
	c.admin()
	c.taken = []string{filepath.Clean(c.Listen.Socket), c.Admin.Listen}
	if admin := filepath.Clean(c.AdminSocket()); slices.Contains(c.taken, admin) {
		c.fail("admin.socket", "%s is listened on already; use a path of its own", admin)
	} else {
		c.taken = append(c.taken, admin)
	}
	for i, addr := range c.Listen.RESP {
		path := fmt.Sprintf("listen.resp[%d]", i)
		if !c.endpoint(path, addr) && c.Listen.RESPPasswordFile == "" && c.meant("listen.resp_password_file") {
			c.fail(path, "%s is open to other machines; set listen.resp_password_file, or use 127.0.0.1", addr)
		}
	}
	if f := c.Listen.RESPPasswordFile; f != "" {
		c.absolute("listen.resp_password_file", f)
	}
	c.oneOf("listen.resp_full", c.Listen.RESPFull, RESPFullDrop, RESPFullError)
}

// endpoint wants a socket's path or host:port that is not taken, takes it, and
// reports whether only this machine can reach it.
func (c *checker) endpoint(path, addr string) (local bool) {
	host, port, err := net.SplitHostPort(addr)
	_, perr := strconv.ParseUint(port, 10, 16)
	isSocket := strings.HasPrefix(addr, "/")
	switch {
	case isSocket:
		c.socket(path, addr)
		addr = filepath.Clean(addr)
	case err != nil || perr != nil || host == "":
		c.fail(path, "%q is no address; write the absolute path of a socket, or host:port such as 127.0.0.1:6380", addr)
		return true
	}
	if slices.Contains(c.taken, addr) && (isSocket || port != "0") {
		c.fail(path, "%s is listened on already; use an address of its own", addr)
	}
	c.taken = append(c.taken, addr)
	ip, err := netip.ParseAddr(host)
	return isSocket || host == "localhost" || err == nil && ip.IsLoopback()
}

func (c *checker) mode(path string, mode os.FileMode) {
	if mode&0o222 == 0 || mode > 0o777 {
		c.fail(path, "%s lets nobody connect, which takes write permission; use 0660 or 0600", modeText(mode))
	}
}

func (c *checker) group(path, group string) {
	if strings.ContainsAny(group, ":/\x00") {
		c.fail(path, "%q is not a group; write its name or number", group)
	}
}

// socket wants the absolute path of a socket.
func (c *checker) socket(path, value string) {
	c.absolute(path, value)
	if n := len(value); n > maxSocketPath {
		c.fail(path, "%d bytes are too long for a socket; use a path of at most %d", n, maxSocketPath)
	}
}

// formats checks the keys whose values are words or small numbers.
func (c *checker) formats() {
	c.between("chunk.tokens", c.Chunk.Tokens, 1, 1<<16)
	c.between("events.batches", c.Events.Batches, 1, 1<<20)
	c.oneOf("chunk.hash", c.Chunk.Hash, HashSHA256, HashXXH64)
	c.between("arena.verify_hits", c.Arena.VerifyHits, 0, 1<<30)
	c.oneOf("log.level", c.Log.Level, "trace", "debug", "info", "warn", "error")
	c.oneOf("log.format", c.Log.Format, "auto", "console", "json")
}

func (c *checker) cpu() {
	c.size("cpu.capacity", c.CPU.Capacity, 16*mib)
	if most := c.rules.MemoryBytes; most > 0 && int64(c.CPU.Capacity) > most {
		from := "this machine's memory"
		if c.rules.MemoryFrom != "" {
			from = c.rules.MemoryFrom
		}
		c.fail("cpu.capacity", "%v is more than there is: %s allows %.1f GiB; lower it (the process itself needs some too)",
			c.CPU.Capacity, from, float64(most)/float64(gib))
	}
	c.policy("cpu.policy", c.CPU.Policy)
	if c.CPU.Learned != "" {
		c.absolute("cpu.learned", c.CPU.Learned)
	}
	c.oneOf("cpu.rank_by", c.CPU.RankBy, RankByTokens, RankByCompute)
	c.watermarks("cpu", c.CPU.LowWatermark, c.CPU.HighWatermark)
	c.oneOf("cpu.hugepages", c.CPU.HugePages, HugePagesAuto, HugePagesOn, HugePagesOff)
	if path := c.KeeperSocket(); c.CPU.Keep && len(path) > maxSocketPath && c.meant("listen.socket") {
		c.fail("cpu.keep", "%s, where a keeper listens, has %d bytes, which are too long for a socket; choose a shorter listen.socket, of at most %d", path, len(path), maxSocketPath)
	}
}

func (c *checker) watermarks(tier string, low, high float64) {
	if !(high > 0 && high <= 1) {
		c.fail(tier+".high_watermark", "want a share above 0 and at most 1, not %v", high)
	}
	if !(low > 0 && low < high) && c.meant(tier+".high_watermark") {
		c.fail(tier+".low_watermark", "want a share above 0 and below %s.high_watermark (%v), not %v", tier, high, low)
	}
}

func (c *checker) disk() {
	d := &c.Disk
	seen := make(map[string]bool)
	for i, p := range d.Paths {
		path := fmt.Sprintf("disk.paths[%d]", i)
		c.absolute(path, p)
		if p = filepath.Clean(p); seen[p] {
			c.fail(path, "%s is in the list already; give each folder once", p)
		}
		seen[p] = true
	}
	if d.Meta != "" {
		c.absolute("disk.meta", d.Meta)
	}
	c.oneOf("disk.rank_by", c.Disk.RankBy, RankByTokens, RankByCompute)
	c.policy("disk.policy", d.Policy)
	c.watermarks("disk", d.LowWatermark, d.HighWatermark)
	if d.InlineMax > 64*kib {
		c.fail("disk.inline_max", "%v is too large for a database value; the most is 64KiB", d.InlineMax)
	}
	c.size("disk.segment_size", d.SegmentSize, maxPayload)
	if d.SegmentSize%(4*kib) != 0 {
		c.fail("disk.segment_size", "want a multiple of 4KiB, not %v; extents are aligned to that", d.SegmentSize)
	}
	c.positive("disk.io_timeout", d.IOTimeout)
	if d.IODepth < 0 || d.IODepth > maxIODepth {
		c.fail("disk.io_depth", "want 1 to %d, or 0 to have it found, not %d", maxIODepth, d.IODepth)
	}
	if !d.Enabled() || !c.meant("disk.capacity") {
		return
	}
	if len(d.Paths) == 0 {
		c.fail("disk.paths", "is empty; give a folder, or set disk.capacity to 0 for no disk tier")
	}
	if d.Capacity < d.SegmentSize && c.meant("disk.segment_size") {
		c.fail("disk.capacity", "%v does not hold one segment (disk.segment_size is %v); raise it, lower that, or set it to 0 for no disk tier", d.Capacity, d.SegmentSize)
	}
}

func (c *checker) remote() {
	s := &c.Remote.S3
	c.between("remote.s3.concurrency", s.Concurrency, 1, 4096)
	c.size("remote.s3.flight", s.Flight, mib)
	c.positive("remote.s3.timeout", s.Timeout)
	if s.TTL < 0 {
		c.fail("remote.s3.ttl", "want a duration of 0s or more, not %s", durationText(s.TTL))
	}
	checkBucket(c, s.Bucket)
	checkPrefix(c, s.Prefix)
	if s.Enabled() && s.Region == "" && c.meant("remote.s3.bucket") {
		c.fail("remote.s3.region", "is empty; requests are signed for a region, us-east-1 does for most stores")
	}
	if s.Endpoint == "" {
		return
	}
	u, err := url.Parse(s.Endpoint)
	switch { // what may hold a password is not repeated
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		c.fail("remote.s3.endpoint", "want a URL that starts with http:// or https:// and names a host")
	case u.User != nil:
		c.fail("remote.s3.endpoint", "contains credentials; give them through the environment or remote.s3.profile")
	}
}

// flows checks writing, prefetching, leases and pins.
func (c *checker) flows() {
	c.oneOf("write.mode", c.Write.Mode, WriteAuto, WriteThrough, WriteBack, WriteSelective)
	if age := c.Write.UnsafeAge; age < 0 || age > 0 && age < time.Second { // it is kept to the second
		c.fail("write.unsafe_age", "want 0s, which is no bound, or 1s or more, not %s", durationText(age))
	}
	c.between("write.min_hits", c.Write.MinHits, 1, 1<<20)
	c.size("write.queue", c.Write.Queue, mib)
	c.oneOf("prefetch.policy", c.Prefetch.Policy, PrefetchBestEffort, PrefetchWaitComplete, PrefetchTimeout)
	c.positive("prefetch.deadline", c.Prefetch.Deadline)
	if c.Prefetch.Per1024Tokens < 0 {
		c.fail("prefetch.per_1024_tokens", "want a duration of 0s or more, not %s", durationText(c.Prefetch.Per1024Tokens))
	}
	c.size("prefetch.window", c.Prefetch.Window, mib)
	c.positive("lease.max_age", c.Lease.MaxAge)
	c.positive("pin.max_age", c.Pin.MaxAge)
	c.retain()
}

func (c *checker) retain() {
	r := c.Retain
	if r.MaxDuration <= 0 || r.MaxDuration > MaxRetain {
		c.fail("retain.max_duration", "want a duration above 0s and at most 720h, not %s", durationText(r.MaxDuration))
	}
	if r.Total > 0 && r.UID > r.Total {
		c.fail("retain.uid", "%v is more than retain.total, %v, of all users; lower it, or raise that", r.UID, r.Total)
	}
}

func (c *checker) spaces() {
	seen := map[string]bool{}
	for i, s := range c.Spaces {
		path := fmt.Sprintf("spaces[%d]", i)
		switch {
		case s.Match == "":
			c.fail(path+".match", `is empty and matches no model; write a name, or a pattern such as "llama-*"`)
		case seen[s.Match]:
			c.fail(path+".match", "%q is in an earlier rule, which counts; remove one", s.Match)
		}
		seen[s.Match] = true
		if s.Quota != 0 {
			c.size(path+".quota", s.Quota, maxPayload)
		}
		if s.MaxAge < 0 || s.MaxAge > maxAge || s.MaxAge%time.Second != 0 {
			c.fail(path+".max_age", "want whole seconds up to %s, 0s for any age, not %s", durationText(maxAge), durationText(s.MaxAge))
		}
		c.between(path+".prefill_depth", s.PrefillDepth, 1, maxPrefillDepth)
		if s.Priority > 0 && s.Quota == 0 {
			c.fail(path+".priority", "spares chunks of spaces with a quota; add one, or remove it")
		}
		if s.Priority < 0 || s.Priority > maxPriority {
			c.fail(path+".priority", "want 0 to %d, how often a chunk is spared when it would go, not %d", maxPriority, s.Priority)
		}
	}
}

func (c *checker) budget() {
	b := c.Budget
	shares := []struct {
		path  string
		value float64
	}{
		{"budget.leases", b.Leases}, {"budget.pins", b.Pins},
		{"budget.loads", b.Loads}, {"budget.unwritten", b.Unwritten},
	}
	sound := true
	for _, s := range shares {
		inRange := s.value > 0 && s.value <= MaxProtected
		if !inRange {
			c.fail(s.path, "want a share above 0 and at most %v, not %v", MaxProtected, s.value)
		}
		sound = sound && inRange && c.meant(s.path)
	}
	// Shares are decimal fractions: 0.4+0.2+0.2 is a hair above 0.8 in binary.
	const rounding = 1e-9
	if sum := b.Leases + b.Pins + b.Loads; sound && sum > MaxProtected+rounding {
		c.fail("budget", "leases, pins and loads add up to %.3g of cpu.capacity; at most %v may be protected, so that the rest can always be evicted: lower one", sum, MaxProtected)
	}
}
