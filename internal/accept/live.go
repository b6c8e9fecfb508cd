package accept

import (
	"net"
	"sync"
)

// Live is the connections that a server has now. It is safe for concurrent use;
// the zero Live has none.
type Live struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// Add counts a connection in; the caller calls remove when it is done with it.
// A connection is added before its client is admitted: then a check that runs
// at the same time misses none.
func (l *Live) Add(conn net.Conn) (remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		l.conns = make(map[net.Conn]struct{})
	}
	l.conns[conn] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, conn)
	}
}

// Recheck closes the connections that admit refuses by now.
func (l *Live) Recheck(admit func(net.Conn) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		if admit(conn) != nil {
			_ = conn.Close() // its server's read ends
		}
	}
}
