package arena

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Processes without a number, as those of other namespaces are, are each waited for by
// themselves; those with one number are one process.
func TestQuarantineOfProcessesWithoutNumber(t *testing.T) {
	a := newTest(t, Options{CapacityBytes: 1 << 20, Direct: true})
	q, err := NewQuarantine()
	if err != nil {
		t.Fatal(err)
	}
	hold := func(pid int) *Peer {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC) // can be read as a process that has ended
		if err != nil {
			t.Fatal(err)
		}
		p := newPeer(pid, fd)
		q.Add(p, mustAlloc(t, a, 1))
		return p
	}
	end := func(p *Peer) {
		if _, err := p.fd.Write([]byte{1, 1, 1, 1, 1, 1, 1, 1}); err != nil {
			t.Fatal(err)
		}
		if err := q.wait(); err != nil {
			t.Fatal(err)
		}
	}
	one, other, third, again := hold(0), hold(0), hold(7), hold(7)
	for _, step := range []struct {
		ends *Peer
		want QuarantineStats
	}{
		{one, QuarantineStats{Peers: 2, Blocks: 3, Bytes: 3 * AlignBytes}},
		{other, QuarantineStats{Peers: 1, Blocks: 2, Bytes: 2 * AlignBytes}},
		{third, QuarantineStats{}},
	} {
		end(step.ends)
		if got := q.Stats(); got != step.want || a.Stats().Blocks != int64(step.want.Blocks) {
			t.Fatalf("%d blocks are in use, %+v; want %+v", a.Stats().Blocks, got, step.want)
		}
	}
	for _, p := range []*Peer{one, other, third, again} {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}
