package disk_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

const mib = 1 << 20

// TestMain makes of this program the process of a database where a tier has
// started it.
func TestMain(m *testing.M) {
	database.Main()
	m.Run()
}

// memory is an Allocator that never waits.
type memory struct{ *arena.Arena }

func (m memory) Alloc(_ context.Context, n int) (arena.Block, error) {
	b, err := m.Arena.Alloc(n)
	if errors.Is(err, arena.ErrFull) {
		err = tier.ErrNoSpace
	}
	return b, err
}

func newMemory(t *testing.T) memory {
	t.Helper()
	a, err := arena.New(arena.Options{CapacityBytes: 64 * mib})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return memory{a}
}

func options(dir string) disk.Options {
	return disk.Options{
		Paths: []string{dir}, CapacityBytes: 64 * mib, MetaReserveBytes: 16 * mib, SegmentBytes: 8 * mib, Policy: "lru",
		InlineMax: 512, IODepth: 2, Log: zerolog.Nop(),
	}
}

func keyOf(n int) (k key.Key) {
	binary.LittleEndian.PutUint64(k.Hash[:], uint64(n)+1)
	return k
}

// payload is that of key n.
func payload(n, size int) []byte {
	p := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)}).Read(p) // never fails
	return p
}

func put(t *testing.T, d tier.Tier, m memory, n, size int) error {
	t.Helper()
	b, err := m.Alloc(t.Context(), size)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	copy(b.Bytes(), payload(n, size))
	r := tier.Record{Key: keyOf(n), Tokens: 256, Size: uint32(size), Sum: b.Seal()}
	return d.Put(t.Context(), tier.Entry{Record: r, Block: b})
}

func get(t *testing.T, d tier.Tier, m memory, n, size int) error {
	t.Helper()
	b, err := d.Get(t.Context(), keyOf(n), m)
	if err != nil {
		return err
	}
	defer b.Release()
	if !bytes.Equal(b.Bytes(), payload(n, size)) {
		t.Errorf("key %d: wrong bytes", n)
	}
	return nil
}

// works checks that a tier stores and reads.
func works(t *testing.T, d tier.Tier, m memory, n int) {
	t.Helper()
	if err := errors.Join(put(t, d, m, n, 100_000), get(t, d, m, n, 100_000)); err != nil {
		t.Fatal(err)
	}
}

// start opens a tier and runs it until the test ends.
func start(t *testing.T, o disk.Options) *disk.Tier {
	t.Helper()
	d, err := disk.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- d.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), <-ran); err != nil && !errors.Is(err, tier.ErrHung) {
			t.Error(err)
		}
	})
	return d
}

func await(t *testing.T, otherwise string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise)
		}
	}
}

func awaitOpen(t *testing.T, k *disk.Tier) {
	t.Helper()
	await(t, "the tier does not come back", func() bool { return k.Trouble() == nil })
}
