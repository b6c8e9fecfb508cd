package client

import (
	"os"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/directory"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// A client uses the directory of its arena; one of another arena, or that it cannot read,
// leaves it to ask the daemon.
func TestDirectoryOfTheArena(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t, false)
		k := key.Key{Hash: key.Hash{7}}
		for what, c := range map[string]struct {
			arena  int64
			change func(mem []byte)
			used   bool
		}{
			"right":         {1 << 20, func([]byte) {}, true},
			"another arena": {1<<20 - 4096, func([]byte) {}, false},
			"newer":         {1 << 20, func(mem []byte) { mem[8]++ }, false},
			"damaged":       {1 << 20, func(mem []byte) { mem[0]++ }, false},
		} {
			mem, file, err := arena.NewReadOnly("test", directory.Bytes(c.arena))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = arena.CloseReadOnly(mem, file) }) // after the other side of the connection
			d, err := directory.New(mem, c.arena)
			if err != nil {
				t.Fatal(err)
			}
			d.Put(k, 4096, 10, 9)
			c.change(mem)
			s := inlineSetup()
			s.hello.Granted |= wire.FeatureArena | wire.FeatureDirectory
			s.hello.ArenaBytes, s.hello.DirectoryBytes = 1<<20, uint64(len(mem))
			s.files = []*os.File{a.File(), file}
			client := mustDial(t, s, (*fake).drain)
			r := client.maps.mu.directory
			if (r != nil) != c.used {
				t.Errorf("%s: used %t", what, r != nil)
			} else if r != nil {
				if p, ok := r.Find(k); !ok || p.Offset != 4096 {
					t.Errorf("%s: found %t, %+v", what, ok, p)
				}
			}
			client.Close()
			if client.maps.mu.directory != nil {
				t.Errorf("%s: a client that is closed has a directory", what)
			}
		}
	})
}
