package resp

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A bound ends as context.WithTimeout does, whether or not Done was called before
// the end.
func TestBound(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration // what passes
		end   bool
		want  error
	}{
		"under way": {time.Second - 1, false, nil},
		"late":      {time.Second, false, context.DeadlineExceeded},
		"ended":     {time.Second - 1, true, context.Canceled},
	} {
		for _, waiting := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				b := newBound(t.Context(), time.Now().Add(time.Second))
				defer b.end()
				if waiting {
					_ = b.Done()
				}
				derived, cancel := context.WithTimeout(b, time.Hour)
				defer cancel()
				time.Sleep(c.after)
				if c.end {
					b.end()
				}
				synctest.Wait()
				if !errors.Is(b.Err(), c.want) || !errors.Is(derived.Err(), c.want) {
					t.Errorf("%s, waiting %t: %v and below it %v, want %v", name, waiting, b.Err(), derived.Err(), c.want)
				}
				done := false
				select {
				case <-b.Done():
					done = true
				default:
				}
				b.end()
				if after := cmp.Or(c.want, context.Canceled); !errors.Is(b.Err(), after) {
					t.Errorf("%s, waiting %t: in the end %v, want %v", name, waiting, b.Err(), after)
				}
				if done != (c.want != nil) {
					t.Errorf("%s, waiting %t: done is %t", name, waiting, done)
				}
			})
		}
	}
}
