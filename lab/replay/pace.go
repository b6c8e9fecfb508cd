package replay

import (
	"context"
	"time"
)

// pace holds requests back until their timestamps say that it is time.
type pace struct {
	speed float64 // times as fast as the trace; 0 = nothing is held back
	first int64   // milliseconds: the timestamp of the first request
	start time.Time
}

// wait returns when it is time for req, or ctx ends.
func (p *pace) wait(ctx context.Context, req *Request) error {
	if p.speed == 0 {
		return nil
	}
	if p.start.IsZero() {
		p.start, p.first = time.Now(), req.Millis
	}
	after := time.Duration(float64(req.Millis-p.first) * float64(time.Millisecond) / p.speed)
	req.due = p.start.Add(after)
	t := time.NewTimer(time.Until(req.due))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// behind is how long after its time a request starts that starts now.
func (r *Request) behind() time.Duration {
	if r.due.IsZero() {
		return 0
	}
	return max(0, time.Since(r.due))
}
