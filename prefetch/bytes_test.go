package prefetch_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/prefetch"
)

// sized loads chunks of known sizes, each in a second, and notes how many bytes were under
// way at most.
type sized struct {
	sync.Mutex
	bytes        []int64
	flying, most int64
	alone        bool // the most was one chunk
	n            int
}

func (s *sized) Load(ctx context.Context, i int) (int, int64, error) {
	s.Lock()
	s.flying += s.bytes[i]
	s.n++
	if s.flying > s.most {
		s.most, s.alone = s.flying, s.n == 1
	}
	s.Unlock()
	base.Queued(ctx)
	time.Sleep(time.Second)
	s.Lock()
	defer s.Unlock()
	s.flying -= s.bytes[i]
	s.n--
	return i, s.bytes[i], nil
}

// seconds is how long all take where each second has the next ones that fit the window, or
// one.
func (s *sized) seconds(window int64) (n int) {
	for i := 0; i < len(s.bytes); n++ {
		for sum := s.bytes[i]; sum <= window || sum == s.bytes[i]; sum += s.bytes[i] {
			if i++; i == len(s.bytes) {
				return n + 1
			}
		}
	}
	return n
}

// Chunks whose sizes are known fill the window by bytes, whatever came before: many small
// ones do not let as many large ones in. One that is larger than the window comes alone.
// The window is as wide at the end as at the beginning.
func TestBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sized{}
		for i := range 200 {
			size := int64(1)
			switch {
			case i%3 == 0:
				size = 40
			case i == 100:
				size = 150
			}
			s.bytes = append(s.bytes, size)
		}
		j := prefetch.New(prefetch.Options[int]{
			To: len(s.bytes), Window: 100, Bytes: func(i int) int64 { return s.bytes[i] }, Discard: func(int) {},
		}, s)
		start := time.Now()
		j.Run(t.Context())
		if st := j.State(); st.Ready != len(s.bytes) || st.Err != nil {
			t.Fatalf("%+v", st)
		}
		if s.most > 100 && !(s.alone && s.most == 150) {
			t.Errorf("%d bytes were under way", s.most)
		}
		if took, want := time.Since(start), time.Duration(s.seconds(100))*time.Second; took != want {
			t.Errorf("all took %v; windows that are full take %v", took, want)
		}
	})
}
