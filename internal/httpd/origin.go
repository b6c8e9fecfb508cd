package httpd

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// SameOrigin refuses requests that a page of another origin may have made with the
// browser of a user who reaches the listener. By DNS rebinding such a page has a
// name of its own point to the listener's address; the Host header still has that
// name. An address written as numbers is always let through, since a page cannot
// give it another meaning; so are localhost and hosts, names without a port in
// lower case, which stand in the
// configuration under key ("" is nowhere). An Origin header has to name the same host and port as Host.
func SameOrigin(h http.Handler, hosts []string, key string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ownHost(r.Host, hosts) {
			text := fmt.Sprintf("the host %.80q is none of this listener's; ask by its address or localhost", r.Host)
			if key != "" {
				text += ", or add the name to " + key
			}
			refuse(w, text)
			return
		}
		for _, origin := range r.Header.Values("Origin") {
			if !sameHost(origin, r.Host) {
				refuse(w, fmt.Sprintf("the origin %.80q is foreign; pages of other origins may not read this", origin))
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

func refuse(w http.ResponseWriter, text string) {
	w.Header().Set("Connection", "close")
	http.Error(w, text, http.StatusForbidden)
}

// ownHost tells whether a Host header may be meant for this listener. Only a
// client of HTTP/1.0, which is no browser, leaves it out.
func ownHost(host string, hosts []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "" || host == "localhost" || slices.Contains(hosts, host) {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

// sameHost tells whether an origin is that of the host and port in a Host header.
func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}
