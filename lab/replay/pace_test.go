package replay

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		p := pace{speed: 50}
		for _, c := range []struct {
			millis int64
			at     time.Duration
		}{{7000, 0}, {8000, 20 * time.Millisecond}, {8000, 20 * time.Millisecond}, {57000, time.Second}, {10000, time.Second}} {
			req := Request{Millis: c.millis}
			if err := p.wait(t.Context(), &req); err != nil || time.Since(start) != c.at {
				t.Errorf("the request of %d ms starts at %s, error %v; want %s", c.millis, time.Since(start), err, c.at)
			}
		}
		req := Request{Millis: 58000}
		if err := p.wait(t.Context(), &req); err != nil {
			t.Fatal(err)
		}
		if time.Sleep(time.Second); req.behind() != time.Second {
			t.Errorf("behind by %s; want 1 s", req.behind())
		}
	})
	req := Request{Millis: 1 << 40}
	if err := new(pace).wait(t.Context(), &req); err != nil || req.behind() != 0 {
		t.Errorf("without a speed: error %v, behind by %s", err, req.behind())
	}
}
