package daemon

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/test/logtest"
)

// touched is DRAM that takes no memory, and of which only limit bytes are there until it has ended.
type touched struct {
	mu           sync.Mutex
	changed      base.Signal
	bytes, limit int64
	ended        bool
	err          error // of all behind limit then
}

func (m *touched) touch(part []byte, _ bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes += int64(len(part))
	for own := m.bytes; own > m.limit; {
		if m.ended {
			return m.err
		}
		changed := m.changed.Next()
		m.mu.Unlock()
		<-changed
		m.mu.Lock()
	}
	return nil
}

func (m *touched) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	m.changed.Wake()
}

func (m *touched) end(err error) { m.set(func() { m.ended, m.err = true, err }) }

// populating runs a daemon with 2 GiB of DRAM, of which limit bytes are there at once.
func populating(t *testing.T, limit int64) (d *Daemon, m *touched, log *logtest.Book, stop func() error) {
	t.Helper()
	cfg := smallConfig(t)
	cfg.Admin.Listen, cfg.CPU.Capacity, cfg.Disk.Capacity = "127.0.0.1:0", 2<<30, 0
	m, log = &touched{limit: limit}, new(logtest.Book)
	o := optionsOf(zerolog.New(log))
	o.Touch = m.touch
	d, err := New(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	return d, m, log, func() error {
		cancel()
		m.end(nil)
		return <-ended
	}
}

// TestServesWhilePopulating: clients are served from the slices that are there, statistics say how many
// bytes these are, the daemon is ready from 1 GiB on, and a signal ends it at once.
func TestServesWhilePopulating(t *testing.T) {
	d, m, log, stop := populating(t, 256<<20)
	until(t, "the first 256 MiB are not there", func() bool { return d.arena.Populated() == 256<<20 })
	c := dial(t, d)
	prompt, payload := client.Tokens([]uint32{1, 2, 3, 4}), []byte("payload")
	if _, err := c.Put(t.Context(), prompt, 0, [][]byte{payload}); err != nil {
		t.Error(err)
	}
	if chunks, err := c.Get(t.Context(), prompt, client.GetOptions{}); err != nil || len(chunks) != 1 || !bytes.Equal(chunks[0].Bytes, payload) {
		t.Errorf("%d chunks, %v", len(chunks), err)
	}
	c.Close()
	progress, end := context.WithCancel(t.Context())
	d.populateText()
	d.populates.mu.Lock()
	d.populates.mu.from = 0 // as where the daemon's first look came before all memory
	d.populates.mu.Unlock()
	go d.progress(progress, time.Millisecond) //nolint:errcheck // always nil
	until(t, "the log does not say how far it is", func() bool { return strings.Contains(log.String(), "256 MiB of 2.0 GiB, ") })
	end()
	const health = "DRAM is being populated: 256 MiB of 2.0 GiB, "
	if status, text := fetchPage(t, d, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(text, health) {
		t.Errorf("/readyz: %d, %s", status, text)
	}
	if st := d.stats(); st.Arena.PopulatedBytes != 256<<20 || !strings.HasPrefix(st.Health, "not ready: "+health) || !strings.Contains(st.Health, "/s, ") {
		t.Errorf("%s: %+v", st.Health, st.Arena)
	}
	const most = 1<<30 + 64<<20
	m.set(func() { m.limit = most })
	until(t, "1 GiB is not there", func() bool { return d.arena.Populated() == most })
	if st := d.stats(); st.Health != "ready" || st.Arena.PopulatedBytes != most {
		t.Errorf("%s: %+v", st.Health, st.Arena)
	}
	if err := stop(); err != nil || d.arena.Populated() != most || d.short.Load() != nil {
		t.Errorf("a stop: %v, with %d bytes; the log: %s", err, d.arena.Populated(), log)
	}
}

// TestDRAMStaysShort: a daemon that does not get all its memory serves from less, and says so.
func TestDRAMStaysShort(t *testing.T) {
	d, m, log, stop := populating(t, 128<<20)
	m.end(errors.New("cannot allocate memory"))
	untilReady(t, d)
	until(t, "it does not say that it is degraded", func() bool { return d.short.Load() != nil })
	const health = "DRAM has only 128 MiB of the 2.0 GiB of cpu.capacity: arena: cannot allocate memory"
	if st := d.stats(); !strings.HasPrefix(st.Health, "degraded: "+health) || st.Arena.PopulatedBytes != 128<<20 {
		t.Errorf("%s: %+v", st.Health, st.Arena)
	}
	if status, text := fetchPage(t, d, "/readyz"); status != http.StatusOK || !strings.Contains(text, health) {
		t.Errorf("/readyz: %d, %s", status, text)
	}
	if err := stop(); err != nil || strings.Count(log.String(), "smaller than") != 1 {
		t.Errorf("%v, and the log: %s", err, log)
	}
}

// TestNoDRAM: without the first part there is no daemon.
func TestNoDRAM(t *testing.T) {
	short := errors.New("cannot allocate memory")
	o := optionsOf(zerolog.Nop())
	o.Touch = func([]byte, bool) error { return short }
	if _, err := New(smallConfig(t), o); !errors.Is(err, short) || !strings.Contains(err.Error(), "cpu.capacity: ") {
		t.Errorf("New: %v", err)
	}
}
