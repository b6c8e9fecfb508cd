package admin

import (
	"net/http"
	"net/http/pprof"
	"strings"
	"time"
)

// profiles is where profiles of the daemon are, as go tool pprof asks for them. They are
// on this socket only.
const profiles = "/debug/pprof/"

// profile answers with a profile.
func profile(w http.ResponseWriter, r *http.Request) {
	c := http.NewResponseController(w) // one of some seconds takes as long
	_ = c.SetReadDeadline(time.Time{})
	_ = c.SetWriteDeadline(time.Time{})
	switch strings.TrimPrefix(r.URL.Path, profiles) {
	case "profile":
		pprof.Profile(w, r)
	case "trace":
		pprof.Trace(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "cmdline":
		pprof.Cmdline(w, r)
	default:
		pprof.Index(w, r)
	}
}
