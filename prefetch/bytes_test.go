package prefetch_test

import (
	"context"
	"sync"
	"testing"

	"github.com/kvstored/kvstored/prefetch"
)

// sized loads chunks of known sizes, and notes how many bytes were under way at most.
type sized struct {
	sync.Mutex
	bytes        []int64
	flying, most int64
	alone        bool // the most was one chunk
	n            int
}

func (s *sized) Load(_ context.Context, i int) (int, int64, error) {
	s.Lock()
	s.flying += s.bytes[i]
	s.n++
	if s.flying > s.most {
		s.most, s.alone = s.flying, s.n == 1
	}
	s.Unlock()
	defer func() {
		s.Lock()
		defer s.Unlock()
		s.flying -= s.bytes[i]
		s.n--
	}()
	return i, s.bytes[i], nil
}

// Chunks whose sizes are known fill the window by bytes, whatever came before: many small
// ones do not let as many large ones in. One that is larger than the window comes alone.
func TestBytes(t *testing.T) {
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
	j.Run(t.Context())
	if st := j.State(); st.Ready != len(s.bytes) || st.Err != nil {
		t.Fatalf("%+v", st)
	}
	if s.most > 100 && !(s.alone && s.most == 150) {
		t.Errorf("%d bytes were under way", s.most)
	}
}
