package remote

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/base"
)

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
