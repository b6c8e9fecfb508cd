package remote

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/test/s3test"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// latency is what each request takes in virtual time.
const latency = 30 * time.Millisecond

// virtual runs a test in virtual time, with a store that takes latency for each
// request and memory that must be free at the end. No goroutine may be left
// then, and no answer unread.
func virtual(t *testing.T, test func(t *testing.T, s *s3test.Memory, m tiertest.Allocator)) {
	t.Helper()
	s3test.Credentials(t)
	synctest.Test(t, func(t *testing.T) {
		s := s3test.NewMemory(latency)
		test(t, s, memory(t, 16*mib))
		synctest.Wait()
		if n := s.Open(); n != 0 {
			t.Errorf("%d answers were not closed", n)
		}
	})
}

func virtualOptions(s *s3test.Memory) Options {
	o := testOptions("http://store.test")
	o.transport = s
	return o
}
