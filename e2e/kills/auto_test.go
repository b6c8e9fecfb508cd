package kills

import (
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
)

// TestKillUnderAuto: over a full disk a kill costs no chunk that was stored longer than
// write.unsafe_age ago; of what is younger each is right or absent.
func TestKillUnderAuto(t *testing.T) {
	t.Parallel()
	const age, patience = time.Second, 30 * time.Second
	d := load.Folder(t, 64<<20, 512<<20, func(c *config.Config) { c.Write.UnsafeAge = age })
	d.Start()
	c, err := client.Dial(t.Context(), d.Socket, client.Options{Name: "kill", Space: &load.Space})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := load.NewBook()
	store := func(chains int, old bool) {
		t.Helper()
		for range chains {
			chain := load.Chain(t, load.Space, s.Next, 3)
			if err := load.Put(t.Context(), c, chain); err != nil {
				t.Fatal(err)
			}
			if s.Committed[s.Next] = chain; old {
				s.Flushed[s.Next] = chain
			}
			s.Next++
		}
	}
	written := func() daemon.Written {
		t.Helper()
		return d.Stats().Store.Written["disk"]
	}
	for is := false; !is; is = written().Held {
		if store(20, false); s.Next > 10_000 {
			t.Fatal("the disk does not become full")
		}
	}
	for bytes := int64(0); bytes == 0; bytes = written().HeldBytes { // a busy machine looks when all of them are older than age
		if store(60, true); s.Next > 20_000 {
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
	d.Kill()
	d.Start()
	s.Check(t, d.Socket, load.Every)
}

// TestKillUnderThrough: twelve prompts, several times DRAM together, are whole after a kill
// without a flush, once nothing waits to be written.
func TestKillUnderThrough(t *testing.T) {
	t.Parallel()
	d := load.Folder(t, 16<<20, 1<<30, func(c *config.Config) { c.Write.Mode = config.WriteThrough })
	d.Start()
	c, err := client.Dial(t.Context(), d.Socket, client.Options{Name: "kill", Space: &load.Space})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := load.NewBook()
	for ; s.Next < 12; s.Next++ {
		chain := load.Chain(t, load.Space, s.Next, 40) // some 5 MiB
		if err := load.Put(t.Context(), c, chain); err != nil {
			t.Fatal(err)
		}
		s.Committed[s.Next], s.Flushed[s.Next] = chain, chain
	}
	for begun := time.Now(); d.Stats().Store.Written["disk"].Waiting > 0; time.Sleep(10 * time.Millisecond) { // between two looks
		if time.Since(begun) > 30*time.Second {
			t.Fatal("chunks wait to be written that nothing holds back")
		}
	}
	d.Kill()
	d.Start()
	s.Check(t, d.Socket, load.Every)
}
