package remote_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/internal/test/s3test"
)

// TestRemoteDownIsNoEnd: a store that refuses, breaks off or hangs ends a
// prefetch as failed(remote), in each wait policy, and however often it
// is asked: at first the requests fail, later the tier is off. A job that said
// "complete" would tell the engine that the prompt was never stored.
func TestRemoteDownIsNoEnd(t *testing.T) {
	s3 := s3test.Run(t)
	a := sharing(t, over(t, s3.Endpoint))
	storeChains(t, a, 1, 8)
	a.Kill()
	for name, fault := range map[string]s3test.Fault{
		"refuses":    {Status: 503, Code: "SlowDown"},
		"breaks off": {Reset: true},
		"hangs":      {Delay: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := s3test.RunProxy(t, s3)
			d := sharing(t, over(t, proxy.Endpoint, func(c *config.Config) { c.Remote.S3.Timeout = time.Second }))
			defer d.Kill()
			c := d.Dial(client.Options{Name: "remote", Space: &load.Space})
			proxy.Set(func(*http.Request) s3test.Fault { return fault })
			for range 3 {
				for _, policy := range []client.WaitPolicy{client.WaitComplete, client.Timeout} {
					wantFailed(t, c, policy)
				}
			}
			proxy.Set(nil)
			wantBack(t, c)
		})
	}
}

func wantFailed(t *testing.T, c *client.Client, policy client.WaitPolicy) {
	t.Helper()
	st := prefetched(t, c, policy)
	if st.Ready.Chunks != 0 || st.Reason != client.StoppedFailed || st.FailedTier != "remote" {
		t.Errorf("policy %v: %d chunks, reason %v of tier %q, want failed of remote", policy, st.Ready.Chunks, st.Reason, st.FailedTier)
	}
}

// wantBack asks until the store, which works again, is asked too: within half a
// minute, the longest pause between two probes.
func wantBack(t *testing.T, c *client.Client) {
	t.Helper()
	st := prefetched(t, c, client.WaitComplete)
	for end := time.Now().Add(time.Minute); st.Reason == client.StoppedFailed && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
		st = prefetched(t, c, client.WaitComplete)
	}
	if st.Ready.Chunks != 8 || st.Reason != client.Complete {
		t.Errorf("once the store works: %d of 8 chunks, reason %v", st.Ready.Chunks, st.Reason)
	}
}

// prefetched asks for what storeChains stored, and returns how the job ended.
func prefetched(t *testing.T, c *client.Client, policy client.WaitPolicy) client.State {
	t.Helper()
	job, err := c.Prefetch(t.Context(), client.Chain(load.Chain(t, load.Space, 0, 8)), client.PrefetchOptions{Policy: policy, Deadline: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	st, err := job.Wait(t.Context(), client.All)
	if err != nil {
		t.Error(err)
	}
	if err := job.Release(t.Context()); err != nil {
		t.Error(err)
	}
	return st
}
