package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// corruptTries is how often an object is read whose bytes are wrong before it
// is deleted: one machine's bad cable must not empty the store of all.
const corruptTries = 2

var errLength = errors.New("the body is not as long as the record says")

// Get implements tier.Tier. The body goes straight into the block. An
// object that is truly wrong is deleted, or it could not be stored again.
func (t *Tier) Get(ctx context.Context, k key.Key, a tier.Allocator) (arena.Block, error) {
	var b arena.Block
	var err error
	for range corruptTries {
		err = t.request(ctx, kind{op: "get", count: &t.count.gets, direction: reads}, func(ctx context.Context, api *s3.Client) (err error) {
			b, err = t.fetch(ctx, api, k, a)
			return err
		})
		if isRoom(err) || !errors.Is(err, tier.ErrCorrupt) {
			break
		}
	}
	switch {
	case isRoom(err):
	case err == nil:
		t.count.found.Add(1)
		t.count.foundBytes.Add(uint64(b.Len()))
		return b, nil
	case isNotFound(err):
		t.count.stale.Add(1)
		t.absent.add(k)
	case errors.Is(err, tier.ErrCorrupt):
		t.count.corrupt.Add(1)
		t.log.Error().Hex("hash", k.Hash[:]).Msg("an object does not have the bytes its record promises; it is deleted and recomputed")
		if derr := t.Delete(ctx, []key.Key{k}); derr != nil {
			t.log.Error().Err(derr).Msg("a corrupt object stays; delete it")
		}
	}
	return arena.Block{}, err
}

// fetch makes one request for k and reads its body.
func (t *Tier) fetch(ctx context.Context, api *s3.Client, k key.Key, a tier.Allocator) (arena.Block, error) {
	out, err := api.GetObject(ctx, &s3.GetObjectInput{Bucket: &t.o.Bucket, Key: aws.String(t.names.object(k))})
	if err != nil {
		return arena.Block{}, err
	}
	defer out.Body.Close()
	r, expiry, err := parseMetadata(out.Metadata)
	switch {
	case err != nil || r.Key != k:
		// Its owner may want it: it is left alone.
		return arena.Block{}, &Error{Op: "get", Err: fmt.Errorf("%w: %w", tier.ErrNotFound, errForeign)}
	case t.expired(out.LastModified) || !alive(t.o.Ages, k, expiry, out.LastModified):
		return arena.Block{}, &Error{Op: "get", Err: tier.ErrNotFound}
	case out.ContentLength != nil && *out.ContentLength != int64(r.Size):
		return arena.Block{}, &Error{Op: "get", Err: fmt.Errorf("%w: %w", tier.ErrCorrupt, errLength)}
	}
	b, err := a.Alloc(ctx, int(r.Size))
	if err != nil {
		return arena.Block{}, &roomError{err}
	}
	if err := t.fill(ctx, b, out.Body, r.Sum); err != nil {
		b.Release()
		return arena.Block{}, err
	}
	return b, nil
}

// fill reads a body into b, which it must fill exactly, and seals it.
func (t *Tier) fill(ctx context.Context, b arena.Block, body io.Reader, sum uint64) error {
	if err := t.traffic[reads].carry(ctx, b.Len()); err != nil {
		return err
	}
	defer t.traffic[reads].carried(b.Len())
	got, hash, err := readSum(body, b.Bytes())
	t.count.received.Add(uint64(got))
	switch {
	case err != nil:
	case !atEnd(body):
		err = &Error{Op: "get", Err: errLength}
	case hash != sum:
		err = &Error{Op: "get", Err: tier.ErrCorrupt}
	default:
		b.SealSum(sum)
		return nil
	}
	t.count.wasted.Add(uint64(got))
	return err
}

// readSum fills p from body and returns how much of it came, and the checksum
// of all, which is computed as the bytes come.
func readSum(body io.Reader, p []byte) (got int, sum uint64, err error) {
	hash := arena.SumOver(p)
	for got < len(p) && err == nil {
		var n int
		n, err = body.Read(p[got:])
		hash.Arrived(n)
		got += n
	}
	switch {
	case got == len(p):
		return got, hash.Sum(), nil
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return got, 0, err
}

// atEnd reports whether nothing follows.
func atEnd(r io.Reader) bool {
	var one [1]byte
	n, err := io.ReadFull(r, one[:])
	return n == 0 && errors.Is(err, io.EOF)
}

// head asks for an object without its bytes; nil if it is not there. For a write, one that
// has expired is not there, and its end is none of the chunk that is about to be written.
func (t *Tier) head(ctx context.Context, d direction, k key.Key) (out *s3.HeadObjectOutput, err error) {
	out, err = t.ask(ctx, d, k)
	if err != nil || out == nil || t.expired(out.LastModified) {
		return nil, err
	}
	_, expiry, err := parseMetadata(out.Metadata)
	if err != nil && d == reads { // a proxy's page, or another program's
		return nil, nil
	}
	if err != nil {
		return out, nil // whose it is the caller finds out
	}
	past := d == writes && t.o.Ages.ExpiredCopy(k.Space, dated(t.o.Ages, expiry, out.LastModified))
	if past || !alive(t.o.Ages, k, expiry, out.LastModified) {
		return nil, nil
	}
	return out, nil
}

// ask is head of an object of any age.
func (t *Tier) ask(ctx context.Context, d direction, k key.Key) (out *s3.HeadObjectOutput, err error) {
	err = t.request(ctx, kind{op: "head", count: &t.count.heads, direction: d}, func(ctx context.Context, api *s3.Client) (err error) {
		out, err = api.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &t.o.Bucket, Key: aws.String(t.names.object(k))})
		return err
	})
	if isNotFound(err) {
		return nil, nil
	}
	return out, err
}

// Renewed implements tier.Shared.
func (t *Tier) Renewed(ctx context.Context, ks []key.Key, is []bool) error {
	return t.each(ctx, "renewed", ks, is, func(ctx context.Context, k key.Key) (bool, error) {
		out, err := t.ask(ctx, writes, k)
		if err != nil || out == nil {
			return false, err
		}
		_, expiry, foreign := parseMetadata(out.Metadata)
		return foreign == nil && t.o.Ages.Renews(k, dated(t.o.Ages, expiry, out.LastModified)), nil
	})
}

// alive tells the book of ages of an object, and reports whether it may be used. One
// without an expiry counts from when it was put. One of a clock that is ahead of ours is
// left alone: whose clock is wrong cannot be told.
func alive(b *stale.Book, k key.Key, s stale.Expiry, modified *time.Time) bool {
	s = dated(b, s, modified)
	return !b.Ahead(s) && b.Found(k, s)
}

// dated is the expiry of an object, which is from when it was put where it has none.
func dated(b *stale.Book, s stale.Expiry, modified *time.Time) stale.Expiry {
	if !s.HasTTL() {
		if s.Stored = b.Now(); modified != nil {
			s.Stored = uint32(modified.Unix())
		}
	}
	return s
}

// expired reports whether an object is older than the ttl.
func (t *Tier) expired(modified *time.Time) bool {
	return t.o.TTL > 0 && modified != nil && time.Since(*modified) > t.o.TTL
}

// findWidth is how many keys are asked about at a time. With 8, 512 chunks
// that nothing is known of take at most three rounds.
const findWidth = 8

// A round waits for further answers findPatience times as long as the last one
// took, and at least findLeast. Then the search goes on around those who are
// late, in a few requests that it would else not make.
const (
	findPatience = 2
	findLeast    = 20 * time.Millisecond
)

// Find implements tier.Shared: how many of ks, a run of one chain in prefix
// order, are there. Writers store heads before tails, so that a search for the end
// of the stored run needs few requests; where that is not so a get finds the
// hole. found is told each time more is certain.
//
// The first round asks about both ends, or where the Bloom filter thinks the
// end is, and points in between; the next ones divide the rest in nine. A key
// that cannot be asked about ends the run; its error is returned together with
// the length of the run before it.
func (t *Tier) Find(ctx context.Context, ks []key.Key, found func(n int)) (int, error) {
	if err := t.usable(ctx, "find"); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &search{tier: t, ks: ks, hi: len(ks), asked: make([]bool, len(ks)), answers: make(chan probed, len(ks))}
	defer s.asking.Wait()
	defer cancel() // first: the answers still under way are not wanted
	hint := len(ks)
	for i, k := range ks {
		if hint == len(ks) && !t.known.has(k) {
			hint = i
		}
		if t.absent.has(k) {
			s.hi = i
			break
		}
	}
	for at := firstProbes(s.hi, min(hint, s.hi)); s.lo < s.hi; at = spread(s.lo, s.hi, nil) {
		s.round(ctx, at, found)
	}
	return s.lo, s.err
}

// search is a Find under way.
type search struct {
	tier    *Tier
	ks      []key.Key
	lo, hi  int    // lo are there, ks[hi] is not, or cannot be asked about, or is beyond the end
	err     error  // why ks[hi] cannot be asked about
	asked   []bool // each at most once
	open    int    // asked and not answered
	answers chan probed
	asking  sync.WaitGroup
}

// probed is what became of asking about ks[i].
type probed struct {
	i     int
	there bool
	err   error
}

// round asks about the keys at the given places, those not asked about yet,
// and returns when all have answered that matter, or only late ones have not.
func (s *search) round(ctx context.Context, at []int, found func(n int)) {
	for _, i := range at {
		if s.asked[i] {
			continue
		}
		s.asked[i] = true
		s.open++
		s.asking.Go(func() {
			there, err := s.tier.exists(ctx, s.ks[i])
			s.answers <- probed{i, there, err}
		})
	}
	start := time.Now()
	late := time.NewTimer(time.Hour)
	late.Stop()
	defer late.Stop()
	for s.open > 0 && s.lo < s.hi {
		select {
		case a := <-s.answers:
			s.open--
			before := s.lo
			s.narrow(a)
			if found != nil && s.lo > before {
				found(s.lo)
			}
			late.Reset(max(findPatience*time.Since(start), findLeast))
		case <-late.C:
			if slices.Contains(s.asked[s.lo:s.hi], false) {
				return
			}
		}
	}
}

// narrow shortens the search by one answer.
func (s *search) narrow(a probed) {
	switch {
	case a.i < s.lo, a.i >= s.hi: // an answer from behind it was faster
	case a.there:
		s.lo = a.i + 1
	default:
		s.hi, s.err = a.i, a.err
	}
}

// firstProbes picks where to ask first in a run of n of which the leading
// hint are probably there; ascending, each once.
func firstProbes(n, hint int) []int {
	edges := []int{0, n - 1} // most runs are there wholly or not at all
	if hint > 0 {
		edges = []int{hint - 1, min(hint, n-1)}
	}
	return spread(0, n, edges)
}

// spread picks up to findWidth points of lo..hi, edges among them; all of
// them if they are few.
func spread(lo, hi int, edges []int) []int {
	n := hi - lo
	if n <= findWidth {
		edges = nil
	}
	points := make(map[int]bool, findWidth)
	for _, e := range edges {
		points[e] = true
	}
	even := min(n, findWidth-len(edges))
	for j := range even {
		points[lo+(j+1)*(n+1)/(even+1)-1] = true
	}
	var out []int
	for i := lo; i < hi; i++ {
		if points[i] {
			out = append(out, i)
		}
	}
	return out
}
