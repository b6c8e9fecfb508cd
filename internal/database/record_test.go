package database

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/kvstored/kvstored/key"
)

func sampleEntry() Entry {
	return Entry{
		Key:    key.Key{Space: key.SpaceID{0: 0x01, 15: 0x10}, Hash: key.Hash{0: 0xa1, 15: 0xb2}},
		Parent: key.Hash{0: 0xc3, 15: 0xd4},
		Depth:  7, Tokens: 256, Size: 1 << 20, Sum: 0x1122334455667788, Seq: 0x99aabbccddeeff00,
		Created: 1_700_000_000, Expires: 1_700_075_392, Used: 1_700_000_600, Hits: 42,
		Extent: Extent{Segment: 3, Offset: 5 << 20, Bytes: 1 << 20},
	}
}

// The bytes of version 3, which every later program must go on reading; the checksum
// lies behind them.
const goldenEntry = "030000000700000000010000000010" +
	"00c30000000000000000000000000000d4" +
	"8877665544332211" + "00ffeeddccbbaa99" +
	"00f15365" + "58f35365" + "2a000000" + "03000000" +
	"0000500000000000" + "00001000" + "80175565"

func TestEntryGolden(t *testing.T) {
	e := sampleEntry()
	v := AppendEntry(nil, &e)
	if got := hex.EncodeToString(v[:80]); got != goldenEntry {
		t.Fatalf("layout changed:\n got %s\nwant %s", got, goldenEntry)
	}
	if got, want := binary.LittleEndian.Uint64(v[80:]), goldenSum; got != want {
		t.Fatalf("checksum changed: got %#x, want %#x", got, want)
	}
	k := EntryKey(e.Key)
	var got Entry
	if err := DecodeEntry(&got, k[:], v); err != nil || got != e {
		t.Fatalf("got %+v, %v; want %+v", got, err, e)
	}
}

const goldenSum uint64 = 0x24c5cccde2569051

// A header is read where it was written, with the secret it was written with,
// also when one copy of it is damaged, and nowhere else.
func TestHeader(t *testing.T) {
	e := sampleEntry()
	e.Used, e.Hits, e.Expires = e.Created, 0, e.Created+3600
	want := Header{Entry: e, Void: 1 << 30}
	s, page := NewSealer(make([]byte, SecretBytes)), make([]byte, HeaderBytes)
	s.Seal(page, &want)
	var got Header
	if !s.Open(page, 3, 5<<20, &got) || got != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	if s.Open(page, 3, 4<<20, &got) || s.Open(page, 4, 5<<20, &got) || NewSealer([]byte("another secret")).Open(page, 3, 5<<20, &got) {
		t.Fatal("it is taken elsewhere, or by another set")
	}
	for i := range 8 * HeaderBytes {
		page[i/8] ^= 1 << (i % 8)
		if i%37 == 0 && !s.Open(page, 3, 5<<20, &got) {
			t.Fatalf("bit %d flipped: the other copy is not read", i)
		}
		page[i/8] ^= 1 << (i % 8)
	}
	for i := range 8 * headerCopy {
		page[i/8] ^= 1 << (i % 8)
		if s.open(page[:headerCopy], 3, 5<<20, &got) {
			t.Fatalf("bit %d flipped: it is read", i)
		}
		page[i/8] ^= 1 << (i % 8)
	}
}

func TestEntryRoundTrip(t *testing.T) {
	for _, e := range []Entry{{}, sampleEntry(), {Key: sampleEntry().Key, Size: 100, Inline: true}} {
		k := EntryKey(e.Key)
		v := AppendEntry([]byte("prefix"), &e)[6:]
		if len(v) != EntryBytes {
			t.Fatalf("encoded %d bytes, want %d", len(v), EntryBytes)
		}
		var got Entry
		if err := DecodeEntry(&got, k[:], v); err != nil || got != e {
			t.Fatalf("got %+v, %v; want %+v", got, err, e)
		}
	}
}

func TestEntryEveryFlippedBitIsDamage(t *testing.T) {
	e := sampleEntry()
	k, v := EntryKey(e.Key), AppendEntry(nil, &e)
	var got Entry
	for i := range 8 * len(v) {
		v[i/8] ^= 1 << (i % 8)
		if err := DecodeEntry(&got, k[:], v); !errors.Is(err, ErrDamaged) {
			t.Fatalf("bit %d of the value flipped: %v", i, err)
		}
		v[i/8] ^= 1 << (i % 8)
	}
	for i := range 8 * len(k) {
		k[i/8] ^= 1 << (i % 8)
		if err := DecodeEntry(&got, k[:], v); !errors.Is(err, ErrDamaged) {
			t.Fatalf("bit %d of the key flipped: %v", i, err)
		}
		k[i/8] ^= 1 << (i % 8)
	}
	for n := range v {
		if err := DecodeEntry(&got, k[:], v[:n]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
}

// Of older versions only entries are read whose extents have headers, or that have none.
func TestOlderVersions(t *testing.T) {
	e := sampleEntry()
	e.Expires = 0
	k := EntryKey(e.Key)
	for version := range byte(EntryVersion + 1) {
		for _, flags := range []byte{0, flagHeaded, flagInline} {
			v := AppendEntry(nil, &e)
			v[0], v[1] = version, flags
			binary.LittleEndian.PutUint64(v[EntryBytes-8:], checksum(k[:], v[:EntryBytes-8]))
			var got Entry
			err := DecodeEntry(&got, k[:], v)
			want := e
			want.Inline = flags == flagInline
			if reads := version == EntryVersion || version == plainVersion && flags != 0; reads != (err == nil) || reads && got != want || err != nil && !errors.Is(err, ErrDamaged) {
				t.Errorf("version %d, flags %d: %+v, %v", version, flags, got, err)
			}
		}
	}
}

func TestNewerVersionIsNotDamage(t *testing.T) {
	e := sampleEntry()
	k := EntryKey(e.Key)
	v := AppendEntry(nil, &e)[:80]
	v[0] = EntryVersion + 1
	v = append(v, "a field of the future"...)
	v = binary.LittleEndian.AppendUint64(v, checksum(k[:], v))
	if err := DecodeEntry(&e, k[:], v); !errors.Is(err, ErrNewer) {
		t.Fatalf("got %v, want ErrNewer", err)
	}
}

func TestNoAllocations(t *testing.T) {
	e := sampleEntry()
	k, buf := EntryKey(e.Key), make([]byte, 0, EntryBytes)
	if n := testing.AllocsPerRun(100, func() {
		v := AppendEntry(buf[:0], &e)
		var got Entry
		if DecodeEntry(&got, k[:], v) != nil {
			t.Fatal("does not decode")
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func FuzzDecodeEntry(f *testing.F) {
	e := sampleEntry()
	k := EntryKey(e.Key)
	f.Add(k[:], AppendEntry(nil, &e))
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, k, v []byte) {
		var e Entry
		if DecodeEntry(&e, k, v) != nil {
			return
		}
		// What decodes must be exactly what would be written again, except
		// for bits that this version leaves at zero.
		again := AppendEntry(nil, &e)
		if len(again) != len(v) {
			t.Fatalf("decoded %d bytes, encodes to %d", len(v), len(again))
		}
		var twice Entry
		if err := DecodeEntry(&twice, k, again); err != nil || twice != e {
			t.Fatalf("%+v does not survive: %v", e, err)
		}
	})
}
