package tier

import "testing"

// TestIdleIsBounded: of clients and jobs that come for one load each only so many are
// remembered while another one waits, and none once nothing is under way.
func TestIdleIsBounded(t *testing.T) {
	for name, by := range map[string]func(i uint64) By{
		"clients": func(i uint64) By { return By{Client: i} },
		"jobs":    func(i uint64) By { return By{Client: 1, Job: i} },
	} {
		t.Run(name, func(t *testing.T) {
			q := NewQueue(Limit{Loads: 2})
			first := q.join(by(0), 1)
			for i := range uint64(5000) {
				q.join(by(1+i), int64(i%7)).Leave(int64(1 + i%7))
			}
			busy := &q.mu.busy
			if name == "jobs" {
				busy = busy.kids[1]
			}
			if n, idle := len(busy.kids), len(busy.idle); n != 1+idle || idle == 0 || idle > maxIdle {
				t.Errorf("%d kids, %d of them idle; want one more than idle, and at most %d", n, idle, maxIdle)
			}
			if n := q.Stats().Clients; n != 1 {
				t.Errorf("%d clients have loads; want 1", n)
			}
			first.Leave(1)
			if b := &q.mu.busy; b.kids != nil || b.idle != nil {
				t.Errorf("at rest %d kids are remembered, %d of them idle", len(b.kids), len(b.idle))
			}
		})
	}
}
