package remote

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/stale"
)

// Defaults for what Options leaves zero.
const (
	defaultConcurrency = 32
	defaultTimeout     = 10 * time.Second
	// FlightBytes is the default: what 32 chunks of 8 MiB take.
	FlightBytes = 256 << 20
)

// Options configure a Tier. Bucket is required. Credentials are never among
// them: they come from the environment, the profile or the machine's role.
type Options struct {
	Bucket    string
	Prefix    string // of every object name; may be empty
	ID        string // of the object with which the store is tried; "" = one of its own
	Endpoint  string // URL of the store, without credentials; "" = Amazon's
	Region    string // requests are signed for it
	PathStyle bool   // bucket in the path instead of the host name
	Profile   string // of the shared configuration and credentials files

	// Concurrency is how many reads are in flight, FlightBytes how many bytes
	// of their payloads; defaults 32 and 256 MiB. Writes may be half as many,
	// with half as many bytes, on top of that.
	Concurrency int
	FlightBytes int64
	Timeout     time.Duration // of one request; default 10 s
	TTL         time.Duration // age at which objects count as absent; 0 = never
	List        bool          // Run reads the names of all objects
	// Ages says which chunks have a bound on their age, and is told of those that
	// others have stored; nil: none has.
	Ages *stale.Book

	Log zerolog.Logger

	transport http.RoundTripper // of tests in virtual time; nil = the network
}

// withDefaults checks o.
func (o Options) withDefaults() (Options, error) {
	if o.Bucket == "" {
		return o, errors.New("remote: no bucket")
	}
	if o.Prefix = strings.Trim(o.Prefix, "/"); o.Prefix != "" {
		o.Prefix += "/"
	}
	o.ID = cmp.Or(o.ID, rand.Text())
	o.Concurrency, o.FlightBytes, o.Timeout = cmp.Or(o.Concurrency, defaultConcurrency), cmp.Or(o.FlightBytes, FlightBytes), cmp.Or(o.Timeout, defaultTimeout)
	if o.Concurrency < 1 || o.FlightBytes < 1 || o.Timeout < 0 || o.TTL < 0 {
		return o, fmt.Errorf("remote: %d requests, %d bytes, timeout %v, ttl %v: none may be negative", o.Concurrency, o.FlightBytes, o.Timeout, o.TTL)
	}
	return o, nil
}
