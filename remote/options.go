package remote

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/base"
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

// loginLasts is how long credentials that the store has just taken are not read again:
// others would be refused too.
const loginLasts = time.Second

// login says when credentials and certificates are to be read again. They are
// rotated below a daemon: in the files of a profile, and in that of AWS_CA_BUNDLE.
type login struct {
	asked   chan struct{} // by Reload
	turn    sync.Mutex    // held while they are read
	refused atomic.Bool   // the store has refused those that are in use
	since   atomic.Pointer[time.Time]
}

// refuse notes that the store takes those in use no more.
func (l *login) refuse(now time.Time) {
	if since := l.since.Load(); since == nil || now.Sub(*since) >= loginLasts {
		l.refused.Store(true)
	}
}

// proved notes that the store has taken those in use.
func (l *login) proved(now time.Time) {
	l.since.Store(&now)
	l.refused.Store(false)
}

// Reload has Run read credentials and certificates again.
func (t *Tier) Reload() { base.Poke(t.login.asked) }

// relogin reads them again, and uses them once the store has answered to them; an
// error leaves those that were in use. Of several calls one does so, and the others
// go on as they are.
func (t *Tier) relogin(ctx context.Context) error {
	if !t.login.turn.TryLock() {
		return nil
	}
	defer t.login.turn.Unlock()
	if err := t.Connect(ctx); err != nil {
		return err
	}
	t.log.Info().Msg("the remote tier has read its credentials and certificates again")
	return nil
}

// refusesLogin reports whether the store takes these credentials, or this process the
// store's certificate, no more. What a HEAD is refused for has no word.
func refusesLogin(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch":
		return true
	}
	return errors.Is(err, errCertificate) || e.Op == "head" && (e.Status == http.StatusForbidden || e.Status == http.StatusBadRequest)
}
