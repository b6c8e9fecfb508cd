package config

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxSocketPath is sockaddr_un's sun_path less its final zero, and less the
// byte more of the name that a socket has until it is moved into place.
const maxSocketPath = 106

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
	k.tags(reflect.ValueOf(c).Elem(), "")
	k.listen()
	k.cpu()
	k.disk()
	k.remote()
	k.flows()
	k.spaces()
	k.access()
	return k.errs
}

func (c *checker) fail(path, format string, args ...any) {
	c.add(&Error{Path: path, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) add(e *Error) {
	if c.meant(e.Path) {
		c.errs = append(c.errs, e)
	}
}

func (c *checker) oneOf(path, value string, known ...string) {
	if !slices.Contains(known, value) {
		want := strings.Join(known, ", ")
		if i := strings.LastIndex(want, ", "); i >= 0 {
			want = want[:i] + " or " + want[i+2:]
		}
		e := &Error{Path: path, Text: fmt.Sprintf("want %s, not %q%s", want, value, valuesLeft[value])}
		if valuesLeft[value] != "" {
			e.Instead = instead[path]
		}
		c.add(e)
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

func (c *checker) cpu() {
	if most := c.rules.MemoryBytes; most > 0 && int64(c.CPU.Capacity) > most {
		from := "this machine's memory"
		if c.rules.MemoryFrom != "" {
			from = c.rules.MemoryFrom
		}
		c.fail("cpu.capacity", "%v is more than there is: %s allows %.1f GiB; lower it (the process itself needs some too)",
			c.CPU.Capacity, from, float64(most)/float64(gib))
	}
	if path := c.KeeperSocket(); c.CPU.Keep && len(path) > maxSocketPath && c.meant("listen.socket") {
		c.fail("cpu.keep", "%s, where a keeper listens, has %d bytes, which are too long for a socket; choose a shorter listen.socket, of at most %d", path, len(path), maxSocketPath)
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
	if d.Enabled() && c.meant("disk.capacity") && len(d.Paths) == 0 {
		c.fail("disk.paths", "is empty; give a folder, or set disk.capacity to 0 for no disk tier")
	}
}

func (c *checker) remote() {
	s := &c.Remote.S3
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

// flows checks keys beside each other, where each by itself may be as it is.
func (c *checker) flows() {
	if r := c.Retain; r.Total > 0 && r.UID > r.Total {
		c.fail("retain.uid", "%v is more than retain.total, %v, of all users; lower it, or raise that", r.UID, r.Total)
	}
	if l := &c.Limits; l.UIDConnections > l.Connections && c.clean("limits.connections", "limits.uid_connections") {
		c.fail("limits.uid_connections", "want 1 to the %d of limits.connections, or 0 for half of them, not %d", l.Connections, l.UIDConnections)
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
		if s.MaxAge%time.Second != 0 {
			c.fail(path+".max_age", "want whole seconds, not %s", durationText(s.MaxAge))
		}
	}
}

// bucketName are the names that S3 takes, but for their length.
var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*[a-z0-9]$`)

// checkPrefix refuses a prefix that stores, and what stands before them, read in several
// ways.
func checkPrefix(c *checker, prefix string) {
	names := strings.Trim(prefix, "/")
	for part := range strings.SplitSeq(names, "/") {
		if names != "" && (part == "" || part == "." || part == "..") {
			c.fail("remote.s3.prefix", "%q has a part that is empty or only dots, which stores read in several ways; write names between single slashes", prefix)
			return
		}
	}
}

// checkBucket refuses the name of a bucket that S3 would refuse.
func checkBucket(c *checker, name string) {
	if n := len(name); strings.ContainsAny(name, "/ \x00") {
		c.fail("remote.s3.bucket", "%q is not the name of a bucket; write it without a scheme or a path", name)
	} else if c.Remote.S3.Enabled() && (n < 3 || n > 63) {
		c.fail("remote.s3.bucket", "%q has %d characters; S3 wants 3 to 63 in the name of a bucket", name, n)
	} else if c.Remote.S3.Enabled() && !bucketName.MatchString(name) || strings.Contains(name, "..") {
		c.fail("remote.s3.bucket", "S3 refuses %q; the name of a bucket has lower-case letters, digits, hyphens and single dots, and begins and ends with a letter or digit", name)
	} else if _, err := netip.ParseAddr(name); err == nil || strings.HasPrefix(name, "xn--") {
		c.fail("remote.s3.bucket", "S3 refuses %q; the name of a bucket is no IP address, and does not begin with xn--", name)
	}
}

// tags refuses the values that the tags of their keys do not allow. Rules of access are
// left to access, which says more of their words.
func (c *checker) tags(s reflect.Value, path string) {
	for i := range s.NumField() {
		f, v := s.Type().Field(i), s.Field(i)
		key := join(path, keyName(f))
		words, allowed := f.Tag.Get("oneof"), spanOf(f.Tag)
		switch {
		case key == "access":
		case f.Type.Kind() == reflect.Struct:
			c.tags(v, key)
		case isRules(f.Type):
			for j := range v.Len() {
				c.tags(v.Index(j), fmt.Sprintf("%s[%d]", key, j))
			}
		case words != "":
			c.oneOf(key, v.String(), strings.Split(words, ",")...)
		case allowed != span{} && !allowed.holds(v):
			c.fail(key, "want %s, not %s", allowed, oneLine(v))
		}
	}
}

// isRules reports whether a key is a list of rules.
func isRules(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

// span is what a range tag says; the zero span says nothing.
type span struct {
	zero        bool // 0 is allowed beside what follows
	above       bool // least itself is not allowed
	least, most string
}

func spanOf(tag reflect.StructTag) (r span) {
	text, zero := strings.CutPrefix(tag.Get("range"), "0,")
	text, r.above = strings.CutPrefix(text, ">")
	r.zero = zero
	r.least, r.most, _ = strings.Cut(text, "..")
	return r
}

// String is a span as a reader has it.
func (r span) String() string {
	text := r.least
	switch {
	case r.above:
		text = "above " + r.least
	case r.most == "" && r.least != "0" && r.least != "0s":
		text = "at least " + r.least
	case r.most == "":
		text = r.least + " or more"
	}
	if r.most != "" {
		text += map[bool]string{true: ", at most ", false: " to "}[r.above] + r.most
	}
	if r.zero {
		text = "0, or " + text
	}
	return text
}

// holds reports whether a value is in a span.
func (r span) holds(v reflect.Value) bool {
	if r.zero && v.IsZero() {
		return true
	}
	least := compare(v, r.least)
	return (least > 0 || least == 0 && !r.above) && (r.most == "" || compare(v, r.most) <= 0)
}

// compare compares a value with one that is written as a file has it.
func compare(v reflect.Value, text string) int {
	w := reflect.New(v.Type()).Elem()
	if err := setText(w, text); err != nil {
		panic(err) // of a tag that stands here
	}
	if v.CanFloat() {
		return cmp.Compare(v.Float(), w.Float())
	}
	return cmp.Compare(v.Int(), w.Int())
}

// clean reports whether keys are meant, and nothing is wrong with one of them by itself.
func (c *checker) clean(keys ...string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool {
		return !c.meant(key) || slices.ContainsFunc(c.errs, func(e *Error) bool { return e.Path == key })
	})
}
