package remote

import (
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/kvstored/kvstored/internal/test/s3test"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// TestPurge: a space is deleted page by page, also objects that this machine
// knows nothing of; a dry purge deletes nothing, one that failed goes on with
// the rest, and other spaces stay.
func TestPurge(t *testing.T) {
	const chunks, known, size = 2500, 10, 10
	virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
		c, other := tiertest.Chain(1, chunks), tiertest.Chain(2, 1)
		writer := connect(t, virtualOptions(s))
		put(t, writer, m, c, 0, chunks, size)
		put(t, writer, m, other, 0, 1, size)
		h := newHost(t, virtualOptions(s), tier.BreakerOptions{})
		head := *c
		head.Hashes, head.Tokens = c.Hashes[:known], c.Tokens[:known]
		if n := h.all(&head); n != known {
			t.Fatalf("%d chunks are known; want %d", n, known)
		}
		purge := func(dry bool) (sum tier.Purged, steps int, err error) {
			for {
				p, err := h.Remover.Purge(t.Context(), c.Space, sum.Next, dry)
				sum.Known, sum.Found, sum.Bytes, sum.Next = sum.Known+p.Known, sum.Found+p.Found, sum.Bytes+p.Bytes, p.Next
				steps++
				if err != nil || p.Next == "" {
					return sum, steps, err
				}
			}
		}
		got, steps, err := purge(true)
		if want := (tier.Purged{Known: known, Found: chunks, Bytes: chunks * size}); got != want || steps != 3 || err != nil {
			t.Errorf("dry: %+v in %d steps, error %v; want %+v", got, steps, err, want)
		}
		if n := len(s.Objects()); n != chunks+1 {
			t.Fatalf("a dry purge left %d objects", n)
		}
		deletes := 0
		s.Set(func(r *http.Request) s3test.Fault {
			if r.Method != http.MethodPost {
				return s3test.Fault{}
			}
			if deletes++; deletes == 3 { // the known ones, a page, and this
				return s3test.Fault{Status: 403, Code: "AccessDenied"}
			}
			return s3test.Fault{}
		})
		first, _, err := purge(false)
		if err == nil || first.Known != known || first.Found != 1000 {
			t.Errorf("a store that refuses after a page: %+v, error %v", first, err)
		}
		s.Set(nil)
		rest, _, err := purge(false)
		if want := (tier.Purged{Found: chunks - known - 1000, Bytes: (chunks - known - 1000) * size}); rest != want || err != nil {
			t.Errorf("what was left: %+v, error %v; want %+v", rest, err, want)
		}
		if left := s.Objects(); len(left) != 1 || left[0] != writer.names.object(other.Key(0)) {
			t.Errorf("%d objects are left; want the one of another space", len(left))
		}
		if left, _, err := purge(true); left != (tier.Purged{}) || err != nil {
			t.Errorf("after all was deleted %+v is left, error %v", left, err)
		}
	})
}

// A store that lists the same page for ever ends a listing with an error, and a purge.
func TestListingsEnd(t *testing.T) {
	virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
		r := connect(t, virtualOptions(s))
		c := tiertest.Chain(1, 3)
		put(t, r, m, c, 0, 3, 10)
		s.Set(func(q *http.Request) s3test.Fault {
			if u := q.URL.Query(); u.Has("list-type") {
				u.Del("continuation-token")
				u.Del("start-after")
				u.Set("max-keys", "1")
				q.URL.RawQuery = u.Encode()
			}
			return s3test.Fault{}
		})
		pages := 0
		err := r.list(t.Context(), "", func([]types.Object) error { pages++; return nil })
		if err == nil || !strings.Contains(err.Error(), "in order") || pages != 1 {
			t.Errorf("the listing ends after %d pages with %v", pages, err)
		}
		p, err := r.Purge(t.Context(), c.Space, "", true, nil)
		if err != nil || p.Next == "" {
			t.Fatalf("the first page: %+v, %v", p, err)
		}
		if p, err = r.Purge(t.Context(), c.Space, p.Next, true, nil); err == nil {
			t.Errorf("the same page again: %+v", p)
		}
	})
}
