package budget

import "testing"

func TestPlan(t *testing.T) {
	const gib, least = 1 << 30, 256 << 20
	for _, tt := range []struct {
		name            string
		limit, arena    int64
		clients         int64
		want            int64 // for the clients
		fits            bool
		goLeast, goMost int64
	}{
		{"a container of the arena and 1 GiB", 5 * gib, 4 * gib, 0, (gib - 192*mib - 160*mib - 16*mib) / 8 * 5, true, 700 * mib, 800 * mib},
		{"a small one", gib / 2, 64 * mib, 0, least, false, 160 * mib, 200 * mib},
		{"a machine", 1024 * gib, 64 * gib, 0, gib, true, 900 * gib, 1024 * gib},
		{"no limit", 0, 4 * gib, 0, gib, true, 0, 0},
		{"as configured", 5 * gib, 4 * gib, 300 * mib, 300 * mib, true, 700 * mib, 800 * mib},
		{"more than there is", 5 * gib, 4 * gib, 2 * gib, 2 * gib, false, 700 * mib, 800 * mib},
		{"an arena that leaves nothing", 4 * gib, 4 * gib, 0, least, false, ownBytes, ownBytes},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := NewPlan(tt.limit, tt.arena, 192*mib, tt.clients, least)
			if p.Clients != tt.want || (p.Short() == 0) != tt.fits {
				t.Errorf("%+v: %d for the clients, want %d; short of %d", p, p.Clients, tt.want, p.Short())
			}
			if n := p.GoLimit(); n < tt.goLeast || n > tt.goMost {
				t.Errorf("a heap of %d bytes, want %d to %d", n, tt.goLeast, tt.goMost)
			}
			if p.Limit > 0 && p.Short() > 0 && p.Total()-p.Short() != p.Limit {
				t.Errorf("%d in all, short of %d, the limit is %d", p.Total(), p.Short(), p.Limit)
			}
		})
	}
}
