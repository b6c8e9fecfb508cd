package budget

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// connection is an account and whether it was ended.
type connection struct {
	*Account
	ended atomic.Int32
}

func open(t *testing.T, b *Budget, h Holder, base int64) *connection {
	t.Helper()
	c := new(connection)
	a, err := (&Account{b: b, holder: h, end: func() { c.ended.Add(1) }}).open(base)
	if err != nil {
		t.Fatal(err)
	}
	c.Account = a
	return c
}

func user(uid uint32) Holder { return Holder{UID: uid} }

const mib = 1 << 20

// The holder that has most loses its largest connection, not the one that asks,
// and not the largest connection of all.
func TestLargestOfTheLargestGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Bytes: 10 * mib})
		big := open(t, b, user(1), 4*mib) // the largest connection
		small, large := open(t, b, user(2), 2*mib), open(t, b, user(2), 3*mib)
		asks := open(t, b, user(3), unitBytes)
		go func() { // the connection that is ended goes after a second
			time.Sleep(time.Second)
			large.Close()
		}()
		start := time.Now()
		if err := asks.Charge(mib); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("the memory was there after %v, before or after it was given back", took)
		}
		for c, want := range map[*connection]int32{big: 0, small: 0, large: 1, asks: 0} {
			if got := c.ended.Load(); got != want {
				t.Errorf("an account of %d bytes was ended %d times, want %d", c.Bytes(), got, want)
			}
		}
		if n := b.Stats().Closed["native"]["memory"]; n != 1 {
			t.Errorf("%d closed connections are counted", n)
		}
		// 2 MiB, 4 MiB and 1.125 MiB are left; the one that asks has most with them.
		if err := asks.Charge(5 * mib); !errors.Is(err, ErrOver) {
			t.Errorf("the largest got what it asked for: %v", err)
		}
		if synctest.Wait(); asks.ended.Load() != 1 {
			t.Error("the largest was not ended")
		}
		if err := asks.Charge(2 * mib); !errors.Is(err, ErrEnded) {
			t.Errorf("an ended account is charged: %v", err)
		}
	})
}

// A connection that was ended and does not go is waited for, and then the one
// that waits ends as well: the limit holds.
func TestWhatDoesNotLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Bytes: 4 * mib})
		stuck, asks := open(t, b, user(1), 3*mib), open(t, b, user(2), unitBytes)
		start := time.Now()
		if err := asks.Charge(2 * mib); !errors.Is(err, ErrOver) || time.Since(start) != patience {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if synctest.Wait(); stuck.ended.Load() != 1 || asks.ended.Load() != 1 {
			t.Error("both end once")
		}
		if st := b.Stats(); st.UsedBytes > st.LimitBytes {
			t.Errorf("%+v", st)
		}
	})
}

func TestHolderShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Bytes: 10 * mib, HolderBytes: 6 * mib})
		one, other := open(t, b, user(1), 2*mib), open(t, b, user(1), 3*mib)
		if err := one.Charge(2 * mib); !errors.Is(err, ErrOver) {
			t.Errorf("one of 4 MiB beside one of 3 MiB: %v", err)
		}
		one.Close()
		if err := other.Charge(3 * mib); err != nil {
			t.Errorf("the whole share: %v", err)
		}
		if got := b.Stats().Closed["native"]; got["uid_memory"] != 1 || got["memory"] != 0 {
			t.Errorf("%v", got)
		}
		if synctest.Wait(); one.ended.Load() != 1 || other.ended.Load() != 0 {
			t.Error("the wrong one was ended")
		}
	})
}

// What a holder has leaving counts to its share: while its connections leave, however
// slowly, the rest is there for others.
func TestLeavingCountsToShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Bytes: 8 * mib, HolderBytes: 6 * mib})
		leaves, next, other := open(t, b, user(1), 4*mib), open(t, b, user(1), unitBytes), open(t, b, user(2), unitBytes)
		start := time.Now()
		charged := make(chan time.Duration)
		go func() {
			if err := next.Charge(3 * mib); err != nil {
				t.Error(err)
			}
			charged <- time.Since(start)
		}()
		if synctest.Wait(); leaves.ended.Load() != 1 {
			t.Error("the largest was not ended")
		}
		if err := other.Charge(mib); err != nil || time.Since(start) > 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		time.Sleep(patience / 2)
		leaves.Close()
		if took := <-charged; took != patience/2 {
			t.Errorf("the memory of the holder's own was there after %v", took)
		}
	})
}

// Random charges and releases come to a plain sum of them, give or take the units
// that accounts keep, and the limit always holds.
func TestModel(t *testing.T) { synctest.Test(t, model) }

func model(t *testing.T) {
	const limit, most = 64 * mib, 4 * mib
	b := New(Options{Bytes: limit, HolderBytes: limit / 2})
	rnd := rand.New(rand.NewPCG(1, 2))
	type modelled struct {
		*connection
		charges []int64
	}
	var all []*modelled
	sum := func() (n int64) {
		for _, m := range all {
			for _, c := range m.charges {
				n += c
			}
		}
		return n
	}
	for range 10_000 {
		if b.Stats().UsedBytes+most+unitBytes > limit && rnd.IntN(2) == 0 { // a charge would wait in vain for who it ends
			i := rnd.IntN(len(all))
			all[i].Close()
			all = slices.Delete(all, i, i+1)
			continue
		}
		switch k := rnd.IntN(10); {
		case len(all) == 0 || k == 0 && len(all) < 40 && b.Stats().UsedBytes+unitBytes <= limit:
			h := user(uint32(rnd.IntN(4)))
			if has := b.mu.holders[h]; has != nil && b.full(has, unitBytes) {
				continue
			}
			all = append(all, &modelled{connection: open(t, b, h, unitBytes), charges: []int64{unitBytes}})
		case k == 1:
			i := rnd.IntN(len(all))
			all[i].Close()
			all = slices.Delete(all, i, i+1)
		case k < 6:
			m := all[rnd.IntN(len(all))]
			n := 1 + rnd.Int64N(most)
			if b.Stats().UsedBytes+n+unitBytes > limit {
				continue
			}
			if m.Charge(n) == nil {
				m.charges = append(m.charges, n)
			}
		default:
			m := all[rnd.IntN(len(all))]
			if i := rnd.IntN(len(m.charges)); i > 0 {
				m.Release(m.charges[i])
				m.charges = append(m.charges[:i], m.charges[i+1:]...)
			}
		}
		keep := all[:0] // those that were ended go
		for _, m := range all {
			if m.ended.Load() > 0 {
				m.Close()
				continue
			}
			keep = append(keep, m)
		}
		all = keep
		used, want := b.Stats().UsedBytes, sum()
		if used > limit || used < want || used > want+int64(len(all))*2*unitBytes {
			t.Fatalf("%d bytes are used; the charges of %d accounts come to %d, the limit is %d", used, len(all), want, limit)
		}
	}
	for _, m := range all {
		m.Close()
	}
	if n := b.Stats().UsedBytes; n != 0 || b.mu.leaving != 0 || len(b.mu.holders) != 0 {
		t.Errorf("%d bytes, %d of them leaving, and %d holders are left", n, b.mu.leaving, len(b.mu.holders))
	}
}

// Many at once, some of which are ended: the limit holds at every moment and
// nothing is left.
func TestManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 8 * mib
		b := New(Options{Bytes: limit, HolderBytes: limit * 3 / 4})
		var all sync.WaitGroup
		var over atomic.Int64
		for i := range 16 {
			all.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(i), 3))
				for range 50 {
					a, err := (&Account{b: b, holder: user(uint32(i % 3)), end: func() {}}).open(unitBytes)
					if err != nil {
						continue
					}
					var work sync.WaitGroup
					for range 2 {
						n := 1 + rnd.Int64N(mib)
						work.Go(func() {
							if a.Charge(n) == nil {
								a.Release(n)
							}
						})
					}
					work.Wait()
					if st := b.Stats(); st.UsedBytes > limit {
						over.Add(1)
					}
					a.Close()
					a.Close()
				}
			})
		}
		all.Wait()
		if st := b.Stats(); over.Load() > 0 || st.UsedBytes != 0 {
			t.Errorf("over the limit %d times; %d bytes are left", over.Load(), st.UsedBytes)
		}
	})
}

func TestChargesAllocateNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open(t, New(Options{Bytes: 64 * mib}), user(1), unitBytes)
		for _, n := range []int64{64, 64 << 10, 4 * mib} {
			if allocs := testing.AllocsPerRun(100, func() {
				if a.Charge(n) != nil {
					t.Error("no room")
				}
				a.Release(n)
			}); allocs > 0 {
				t.Errorf("%v allocations for %d bytes", allocs, n)
			}
		}
	})
}

func TestNilBoundsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *Budget
		a, err := b.Open(nil, RESP, 1<<50)
		if err != nil || a.Charge(1<<50) != nil {
			t.Error("the nil budget has a bound")
		}
		a.Release(1)
		a.Closed(Stalled)
		a.Close()
		if st := b.Stats(); st.LimitBytes != 0 || b.Run(context.Background()) != nil {
			t.Errorf("%+v", st)
		}
	})
}

// socketPair is the two ends of a connection to an address.
func socketPair(t *testing.T, network, address string) (client, server net.Conn) {
	t.Helper()
	ends, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer ends.Close()
	if client, err = net.Dial(network, ends.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if server, err = ends.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

// The bytes that a client has not read are charged, and those that it has read are
// not, at the latest when the memory is needed.
func TestUnreadIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, conn := socketPair(t, "unix", filepath.Join(t.TempDir(), "s"))
		b := New(Options{Bytes: mib})
		if err := conn.(*net.UnixConn).SetWriteBuffer(mib); err != nil {
			t.Fatal(err)
		}
		a, err := b.Open(conn, RESP, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		const n, pieces = 32 << 10, 16
		for range pieces {
			if err := a.Sending(n); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write(make([]byte, n)); err != nil {
				t.Fatal(err)
			}
			a.Sent()
		}
		if got := a.Bytes(); got < pieces*n-freeBytes {
			t.Errorf("%d bytes are charged of %d that nobody has read", got, pieces*n)
		}
		if _, err := io.ReadFull(client, make([]byte, pieces*n)); err != nil {
			t.Fatal(err)
		}
		other := open(t, b, user(1), mib-2*unitBytes)
		if got := a.Bytes(); got != 0 || b.Stats().Closed["native"]["memory"] != 0 {
			t.Errorf("%d bytes are charged for what was read", got)
		}
		other.Close()
	})
}

// The kernel is asked about ghosts while others charge and release.
func TestGhostsAreAskedWithoutTheMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Bytes: 10 * mib})
		left := map[int]int64{3: mib, 4: 0, 5: mib / 2}
		b.mu.used, b.holding(user(1)).used, b.holding(user(1)).ghosts = 3*mib, 3*mib, 3*mib
		for fd := 3; fd <= 5; fd++ {
			b.mu.ghosts = append(b.mu.ghosts, ghost{user(1), mib, -fd})
		}
		b.unread = func(fd int) int64 {
			if !b.mu.TryLock() {
				t.Error("the mutex is held while the kernel is asked")
			} else {
				b.mu.Unlock()
			}
			return left[-fd]
		}
		if n := b.exorcise(); n != 2 {
			t.Errorf("%d ghosts are left; want 2", n)
		}
		if st := b.Stats(); st.UsedBytes != 3*mib/2 {
			t.Errorf("%d bytes are used; want %d", st.UsedBytes, 3*mib/2)
		}
		clear(left)
		if n := b.exorcise(); n != 0 || b.Stats().UsedBytes != 0 || len(b.mu.holders) != 0 {
			t.Errorf("%d ghosts, %+v and %d holders are left", n, b.Stats(), len(b.mu.holders))
		}
	})
}
