package main

import (
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
)

// TestKillUnderAuto: over a full disk a kill costs no chunk that was stored longer than
// write.unsafe_age ago; of what is younger each is right or absent.
func TestKillUnderAuto(t *testing.T) {
	const age, patience = time.Second, 30 * time.Second
	d := crashDaemon(t, 64<<20, 512<<20, func(c *config.Config) { c.Write.UnsafeAge = age })
	if _, err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(t.Context(), d.socket, client.Options{Name: "kill", Space: &crashSpace})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := newStored()
	store := func(chains int, old bool) {
		t.Helper()
		for range chains {
			chain := chainOf(t, crashSpace, s.next, 3)
			if err := storeChain(t.Context(), c, chain); err != nil {
				t.Fatal(err)
			}
			if s.committed[s.next] = chain; old {
				s.flushed[s.next] = chain
			}
			s.next++
		}
	}
	written := func() writtenView {
		t.Helper()
		st, err := d.stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st.Store.Written["disk"]
	}
	for is := false; !is; is = written().Held {
		if store(20, false); s.next > 10_000 {
			t.Fatal("the disk does not become full")
		}
	}
	for bytes := int64(0); bytes == 0; bytes = written().HeldBytes { // a busy machine looks when all of them are older than age
		if store(60, true); s.next > 20_000 {
			t.Fatal("nothing is in DRAM alone")
		}
	}
	begun := time.Now()
	for left := written().Waiting; left > 0; left = written().Waiting { // what the writers are at is not held any more, and not yet written
		if time.Since(begun) > age+patience {
			t.Fatalf("%d chunks are not written %v after they were stored", left, time.Since(begun))
		}
		time.Sleep(10 * time.Millisecond) // between two looks
	}
	store(20, false)
	d.kill()
	if _, err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.check(t, d.socket, every)
}
