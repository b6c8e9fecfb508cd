package store_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// bucketed is a rig over a disk that an earlier process left and a bucket that came
// later, with faults in front of that.
func bucketed(t *testing.T, disk *tiertest.Memory, bucket tier.Tier, hook tierfault.Hook, chains ...*key.Chain) *rig {
	t.Helper()
	r := newRig(t, options{capacity: mib, disk: disk, remote: struct{ tier.Tier }{tierfault.Wrap(bucket, hook)}})
	for _, c := range chains {
		r.see(c)
	}
	return r
}

// upload makes all steps.
func (r *rig) upload() (sum store.Uploaded) {
	r.t.Helper()
	for from := uint64(0); ; from = sum.Next {
		u, err := r.Operator.Upload(r.t.Context(), from)
		if err != nil {
			r.t.Fatal(err)
		}
		sum = store.Uploaded{
			Volume: sum.Plus(u.Volume), Present: sum.Present + u.Present, Gone: sum.Gone + u.Gone,
			Failed: sum.Failed + u.Failed, FailedBytes: sum.FailedBytes + u.FailedBytes, Next: u.Next,
		}
		if u.Next == 0 {
			return sum
		}
	}
}

func (r *rig) wantUploaded(want store.Uploaded) {
	r.t.Helper()
	if got := r.upload(); got != want {
		r.t.Errorf("%+v; want %+v", got, want)
	}
}

func volume(chunks uint64) writeback.Volume {
	return writeback.Volume{Chunks: chunks, Bytes: chunks * size}
}

// TestUpload: chunks that were stored before there was a bucket get there with their
// whole records, each with one put however many daemons upload, and without a chunk in
// use leaving DRAM.
func TestUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 40 // more than DRAM has room for
		var puts atomic.Int32
		count := func(call tierfault.Call) tierfault.Fault {
			if call.Op == tierfault.Put {
				puts.Add(1)
			}
			return tierfault.Fault{}
		}
		bucket := tiertest.NewMemory("remote", 64*mib)
		disk, trunk, branch := left(t, n)
		r := bucketed(t, disk, bucket, count, trunk, branch)
		local := tiertest.Chain(9, 1)
		local.Space[0]++
		r.Writers.KeepLocal(local.Space)
		r.put(local, 0, 1, size)
		used := r.putChain(3, 4)
		r.flush()
		puts.Store(0)
		r.wantUploaded(store.Uploaded{Volume: volume(n + 2)})
		r.wantUploaded(store.Uploaded{})
		r.wantIn(used, 4, 0)
		for i := range n {
			recs, err := bucket.Records(t.Context(), []key.Key{trunk.Key(i)})
			if want := tiertest.RecordOf(trunk, i, size); err != nil || len(recs) != 1 || recs[0] != want {
				t.Errorf("the bucket has %+v, error %v; want %+v", recs, err, want)
			}
		}
		disk, _, _ = left(t, n)
		other := bucketed(t, disk, bucket, count, trunk, branch)
		other.wantUploaded(store.Uploaded{Present: n + 2})
		if got := puts.Load(); got != n+2 {
			t.Errorf("%d puts of %d chunks by two daemons", got, n+2)
		}
		for _, r := range []*rig{r, other} {
			if h, err := r.Operator.Holdings(t.Context()); err != nil || h.Missing+h.MissingBytes != 0 {
				t.Errorf("after the upload %d chunks are missing, error %v", h.Missing, err)
			}
		}
	})
}

// TestUploadLeavesOut: chunks that are wrong, or too old, or deleted before their put or
// during it, are not in the bucket when the upload has ended, and one that the bucket
// refuses is said to have failed.
func TestUploadLeavesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, c, branch := left(t, 6)
		putting, deleted := make(chan struct{}), make(chan struct{})
		bucket := tiertest.NewMemory("remote", 64*mib)
		r := bucketed(t, disk, bucket, func(call tierfault.Call) tierfault.Fault {
			switch {
			case call.Op != tierfault.Put:
			case call.Keys[0] == c.Key(5):
				close(putting)
				return tierfault.Fault{Until: deleted, Late: true}
			case call.Keys[0] == c.Key(4):
				return tierfault.Fault{Err: errIO}
			}
			return tierfault.Fault{}
		}, c, branch)
		disk.Damage(c.Key(0))
		ended := make(chan error)
		go func() {
			<-putting
			go func() {
				_, err := r.Remover.Delete(t.Context(), []key.Key{c.Key(5)})
				ended <- err
			}()
			synctest.Wait() // it waits for the put
			close(deleted)
		}()
		r.wantUploaded(store.Uploaded{Volume: volume(5), Gone: 2, Failed: 1, FailedBytes: size})
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for i, want := range []bool{false, true, true, true, false, false} {
			if got := bucket.Has(c.Key(i)); got != want {
				t.Errorf("chunk %d in the bucket: %v; want %v", i, got, want)
			}
		}
	})
}

// TestUploadExpired: a chunk of which the time comes while it waits for its turn is
// left out.
func TestUploadExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := tiertest.NewMemory("remote", 64*mib)
		c, off := tiertest.Chain(1, 2), atomic.Bool{}
		off.Store(true)
		r := bucketed(t, nil, bucket, func(call tierfault.Call) tierfault.Fault {
			if call.Op == tierfault.Put && off.Load() {
				return tierfault.Fault{Err: errIO}
			}
			if call.Op == tierfault.Contains {
				return tierfault.Fault{Delay: time.Minute}
			}
			return tierfault.Fault{}
		})
		r.putAged(c, 2, 30*time.Second)
		r.flush()
		time.Sleep(10 * time.Second) // beyond its last try
		off.Store(false)
		r.wantUploaded(store.Uploaded{Gone: 2})
		if n := bucket.Stats().Entries; n != 0 {
			t.Errorf("%d chunks that are too old are in the bucket", n)
		}
	})
}

// TestUploadRefused: without a bucket, or one that does not answer, an upload is an error.
func TestUploadRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, err := newRig(t, options{}).Operator.Upload(t.Context(), 0); !errors.Is(err, tier.ErrNotFound) {
			t.Errorf("without a bucket: %v", err)
		}
		disk, trunk, branch := left(t, 4)
		r := bucketed(t, disk, tiertest.NewMemory("remote", 64*mib), tierfault.On(tierfault.Contains, tierfault.Fault{Err: errIO}), trunk, branch)
		if _, err := r.Operator.Upload(t.Context(), 0); !errors.Is(err, errIO) {
			t.Errorf("with one that does not answer: %v", err)
		}
	})
}
