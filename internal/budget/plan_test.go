package budget

import "testing"

func TestPlan(t *testing.T) {
	const gib, least = 1 << 30, 256 << 20
	const rest = gib - 192*mib - 96*mib - 16*mib
	const known = rest / 8 * 3 / 320
	chunks := Chunks{EachBytes: 320, Least: 64 << 10, Most: 3_276_800}
	for _, tt := range []struct {
		name            string
		limit, arena    int64
		clients         int64
		want            int64 // for the clients
		number          int64 // of chunks
		fits            bool
		goLeast, goMost int64
	}{
		{"a container of the arena and 1 GiB", 5 * gib, 4 * gib, 0, (rest - known*320) / 8 * 5, known, true, 700 * mib, 800 * mib},
		{"a small one", gib / 2, 64 * mib, 0, least, (gib/2 - 64*mib - 192*mib - 96*mib - 64*mib/256) / 8 * 3 / 320, false, 160 * mib, 200 * mib},
		{"a machine", 1024 * gib, 64 * gib, 0, gib, chunks.Most, true, 900 * gib, 1024 * gib},
		{"no limit", 0, 4 * gib, 0, gib, chunks.Most, true, 0, 0},
		{"as configured", 5 * gib, 4 * gib, 270 * mib, 270 * mib, known, true, 700 * mib, 800 * mib},
		{"more than there is", 5 * gib, 4 * gib, 2 * gib, 2 * gib, known, false, 700 * mib, 800 * mib},
		{"an arena that leaves nothing", 4 * gib, 4 * gib, 0, least, chunks.Least, false, leastLimit, leastLimit},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := NewPlan(tt.limit, tt.arena, 192*mib, tt.clients, least, chunks)
			if p.Clients != tt.want || (p.Short() == 0) != tt.fits {
				t.Errorf("%+v: %d for the clients, want %d; short of %d", p, p.Clients, tt.want, p.Short())
			}
			if p.Number != tt.number || p.Chunks != 320*tt.number {
				t.Errorf("%d chunks of %d bytes, want %d", p.Number, p.Chunks, tt.number)
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

// The number of chunks leaves DRAM its share of them.
func TestChunks(t *testing.T) {
	const gib = 1 << 30
	large := Chunks{EachBytes: 320, Least: 1 << 20, Most: 1 << 30}
	if p := NewPlan(65*gib, 64*gib, 0, 0, 0, large); p.Number != large.Least {
		t.Errorf("%+v: %d chunks, want %d", p, p.Number, large.Least)
	}
}
