package config

import (
	"net/netip"
	"regexp"
	"strings"
)

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
