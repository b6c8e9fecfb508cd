package trouble

import (
	"flag"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/key"
)

var usableInFull = flag.Bool("usable.full", false, "run TestTimeToUsableInFull, which takes 3 GiB of memory and of disk")

// gptOssLike is a daemon and a model of gpt-oss's sizes, in chunks of 256 tokens.
type gptOssLike struct {
	t      *testing.T
	d      *daemon.Daemon
	spaces [2]key.Space
}

const (
	likeChunk  = 256
	likeFull   = likeChunk * 36 << 10
	likeWindow = 128 * 36 << 10
)

func (m *gptOssLike) dial() (*client.Client, []client.Group) {
	m.t.Helper()
	c, err := client.Dial(m.t.Context(), m.d.Socket, client.Options{Space: &m.spaces[0], Timeout: time.Minute})
	if err != nil {
		m.t.Fatal(err)
	}
	w, err := c.OpenSpace(m.t.Context(), m.spaces[1])
	if err != nil {
		m.t.Fatal(err)
	}
	return c, []client.Group{{Space: c.Space()}, {Space: w, Kind: client.WindowGroup, Tokens: 127}}
}

// store stores a prompt that grows by 4,096 tokens, each with its window, four chunks at a
// time.
func (m *gptOssLike) store(number uint64, chunks int) *key.Chain {
	m.t.Helper()
	c, groups := m.dial()
	defer c.Close()
	chains := []*key.Chain{load.Chain(m.t, m.spaces[0], number, chunks), load.Chain(m.t, m.spaces[1], number, chunks)}
	o := client.ReserveOptions{Count: 4, Sizes: []uint32{likeFull, likeWindow}, Groups: groups, Wait: time.Minute}
	for o.First < chunks {
		whole := *chains[0]
		end := min(o.First/16*16+16, chunks)
		whole.Hashes, whole.Tokens = whole.Hashes[:end], whole.Tokens[:end]
		f, err := c.Reserve(m.t.Context(), client.Chain(&whole), o)
		if err != nil {
			m.t.Fatal(err)
		}
		for i := range f.Len() {
			if f.Status(i) == client.Granted {
				load.Fill(f.Bytes(i), chains[i/4].Key(o.First+i%4))
			}
		}
		if _, err := f.Commit(m.t.Context()); err != nil {
			m.t.Fatal(err)
		}
		if f.Len() == 8 {
			o.First += 4
		}
	}
	return chains[0]
}

// cold has all on disk only.
func (m *gptOssLike) cold() {
	m.t.Helper()
	m.d.Flush()
	m.d.Stop()
	m.d.Start()
}

// load is how many tokens of a prompt are usable, and when that is known.
func (m *gptOssLike) load(chain *key.Chain, o client.PrefetchOptions) (tokens int64, took time.Duration) {
	m.t.Helper()
	c, groups := m.dial()
	defer c.Close()
	o.Groups = groups
	began := time.Now()
	j, err := c.Prefetch(m.t.Context(), client.Chain(chain), o)
	if err != nil {
		m.t.Fatal(err)
	}
	st, err := j.Wait(m.t.Context(), client.All)
	if err != nil {
		m.t.Fatal(err)
	}
	took = time.Since(began)
	if err := j.Release(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	return int64(st.Ready.Tokens), took
}

// TestTimeToUsableInFull: a prompt of 32,768 tokens of a model of gpt-oss's sizes comes from
// disk, usable at each 4,096 tokens, with a deadline at 70 % of the time that all takes.
func TestTimeToUsableInFull(t *testing.T) {
	if !*usableInFull {
		t.Skip("it takes gigabytes: -usable.full")
	}
	m := &gptOssLike{t: t, spaces: [2]key.Space{load.Space, load.Space}}
	for g := range m.spaces {
		m.spaces[g].ChunkTokens, m.spaces[g].Model = likeChunk, "gpt-oss-like"
	}
	m.spaces[1].Group = "window"
	m.d = daemon.Start(t, func(c *config.Config) {
		c.CPU.Capacity, c.Disk.Capacity = 3000<<20, 3<<30 // of which 0.4 may be leased
	})
	warm, prompt := m.store(1, 16), m.store(2, 128)
	m.cold()
	m.load(warm, client.PrefetchOptions{Policy: client.WaitComplete})
	all, took := m.load(prompt, client.PrefetchOptions{Policy: client.WaitComplete})
	if all != 32768 {
		t.Fatalf("%d tokens are usable of all", all)
	}
	m.cold()
	m.load(warm, client.PrefetchOptions{Policy: client.WaitComplete}) // the speed is measured
	before := loadedBytes(t, m.d)
	usable, late := m.load(prompt, client.PrefetchOptions{Deadline: took * 7 / 10})
	loaded := (loadedBytes(t, m.d) - before) * likeChunk / likeFull
	t.Logf("all after %v; with a deadline of %v: %d tokens usable of %d that had come, after %v", took, took*7/10, usable, loaded, late)
	if usable*10 < loaded*6 {
		t.Errorf("%d tokens are usable of %d", usable, loaded)
	}
}

// loadedBytes is how many bytes have come up from below DRAM.
func loadedBytes(t *testing.T, d *daemon.Daemon) (n int64) {
	t.Helper()
	var stats struct {
		Store struct {
			Loads map[string]struct{ Bytes int64 }
		}
	}
	if err := d.AskInto(t.Context(), &stats); err != nil {
		t.Fatal(err)
	}
	for _, v := range stats.Store.Loads {
		n += v.Bytes
	}
	return n
}
