package trouble

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
)

var damageRounds = flag.Int("damage-rounds", 3, "how often TestDamage kills the daemon and damages each kind of file; 100 for a long run")

// damages are the states that files can be in after a crash, by their contents.
var damages = []struct{ name, files string }{
	{"extents", "seg-*"},
	{"tables", "badger/*.sst"},
	{"logs", "badger/*.mem"},
	{"manifest", "badger/MANIFEST"},
	{"anything of the database", "badger/*"},
}

// damage flips bytes of some of the files, or cuts one off, or empties it.
func damage(t *testing.T, rng *rand.Rand, files []string) {
	t.Helper()
	path := files[rng.IntN(len(files))]
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	n := info.Size()
	if n == 0 {
		return
	}
	switch rng.IntN(4) {
	case 0:
		n = rng.Int64N(n)
		t.Logf("%s is cut off at %d", filepath.Base(path), n)
		err = os.Truncate(path, n)
	case 1:
		t.Logf("%s is emptied", filepath.Base(path))
		err = os.Truncate(path, 0)
	default:
		t.Logf("bytes of %s are flipped", filepath.Base(path))
		var f *os.File
		if f, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
			break
		}
		defer f.Close()
		for range 1 + rng.IntN(64) {
			var b [1]byte
			off := rng.Int64N(n)
			if rng.IntN(2) == 0 {
				off = rng.Int64N(min(n, 4096)) // where the headers are, and most of a young log
			}
			if _, err = f.ReadAt(b[:], off); err != nil {
				break
			}
			b[0] ^= 1 << rng.IntN(8)
			if _, err = f.WriteAt(b[:], off); err != nil {
				break
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// In every state of the files of a killed daemon, the next one serves after
// a few starts at most, and no wrong byte.
func TestDamage(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for i, kind := range damages {
		t.Run(kind.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			d := load.Folder(t, 64<<20, 1<<30)
			s := load.NewBook()
			for range *damageRounds {
				startDamaged(t, d)
				s.Check(t, d.Socket, load.Every)
				clear(s.Flushed) // what is damaged next may be anything
				c, err := client.Dial(t.Context(), d.Socket, client.Options{Name: "damage", Space: &load.Space})
				if err != nil {
					t.Fatal(err)
				}
				for range 40 {
					chain := load.Chain(t, load.Space, s.Next, 3)
					if err := load.Put(t.Context(), c, chain); err != nil {
						t.Fatal(err)
					}
					s.Committed[s.Next] = chain
					s.Next++
				}
				if _, err := c.Flush(t.Context(), true); err != nil {
					t.Fatal(err)
				}
				c.Close()
				if rng.IntN(2) == 0 { // tables are written at an orderly end
					d.Stop()
				}
				d.Kill()
				files, err := filepath.Glob(filepath.Join(filepath.Dir(d.Config), "disk*", kind.files))
				if err != nil {
					t.Fatal(err)
				}
				if len(files) > 0 {
					damage(t, rng, files)
				}
			}
			startDamaged(t, d)
			s.Check(t, d.Socket, load.Every)
		})
	}
}

// startDamaged starts the daemon, which may end a few times before it gives
// a database up.
func startDamaged(t *testing.T, d *daemon.Daemon) {
	t.Helper()
	const starts = 5
	for n := range starts {
		d.Launch()
		_, err := d.Ready(t.Context())
		if err == nil {
			return
		}
		if t.Logf("start %d: %v", n, err); n == starts-1 {
			t.Fatalf("the daemon does not start in %d tries", starts)
		}
		d.Kill()
	}
}
