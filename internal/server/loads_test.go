package server_test

import (
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
)

// TestLoadsOfAUser: the jobs of one user, of all its connections, have no more chunks come
// up at a time than there are places, and none is forgotten.
func TestLoadsOfAUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			jobs, each = 24, 64 // more than the places, and as many as a job may load at once
			bytes      = 512
		)
		hook, open := gate()
		o := options{capacity: 16 * mib, hook: hook}
		o.Prefetch.WindowBytes = 1 << 40 // else each job waits for its first chunk to know their size
		r := newRig(t, o)
		places := r.server.LoadPlaces()
		if places >= jobs*each {
			t.Fatalf("%d places are more than %d jobs take", places, jobs)
		}
		ctx := t.Context()
		connections := []*client.Client{r.dial(client.Options{}), r.dial(client.Options{})}
		var running []*client.Job
		for i := range jobs {
			r.onDiskSized(chain(uint64(i+1), each), 0, each, bytes)
		}
		for i := range jobs {
			j, err := connections[i%2].Prefetch(ctx, client.Chain(chain(uint64(i+1), each)), client.PrefetchOptions{})
			r.must(err)
			running = append(running, j)
		}
		r.until("all places are taken", func() bool { return r.server.LoadsUnderWay() == places })
		r.must(connections[0].Ping(ctx)) // the others wait, and requests do not
		close(open)
		r.loaded(running, each)
		r.until("no place is taken", func() bool { return r.server.LoadsUnderWay() == 0 })
	})
}

// loaded waits for jobs until all their chunks are ready, and releases them.
func (r *rig) loaded(jobs []*client.Job, chunks int) {
	r.t.Helper()
	for i, j := range jobs {
		if _, err := j.Wait(r.t.Context(), int64(chunks)*tokens); err != nil {
			r.t.Errorf("job %d: %v", i, err)
		}
		if n, _ := j.Ready(); n != chunks {
			r.t.Errorf("job %d: %d chunks of %d are ready", i, n, chunks)
		}
		r.must(j.Release(r.t.Context()))
	}
}
