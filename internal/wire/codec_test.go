package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// newRequest returns an empty request of each operation.
var newRequest = map[Op]func() Message{
	OpHello:     func() Message { return new(HelloRequest) },
	OpOpenSpace: func() Message { return new(OpenSpaceRequest) },
	OpLookup:    func() Message { return new(LookupRequest) },
	OpPrefetch:  func() Message { return new(PrefetchRequest) },
	OpWait:      func() Message { return new(WaitRequest) },
	OpCancel:    func() Message { return new(JobRequest) },
	OpReserve:   func() Message { return new(ReserveRequest) },
	OpCommit:    func() Message { return new(FillRequest) },
	OpAbort:     func() Message { return new(FillRequest) },
	OpPut:       func() Message { return new(PutRequest) },
	OpGet:       func() Message { return new(GetRequest) },
	OpRelease:   func() Message { return new(JobRequest) },
	OpRenew:     func() Message { return new(JobRequest) },
	OpPin:       func() Message { return new(PinRequest) },
	OpUnpin:     func() Message { return new(UnpinRequest) },
	OpDelete:    func() Message { return new(DeleteRequest) },
	OpFlush:     func() Message { return new(FlushRequest) },
	OpStats:     func() Message { return new(EmptyRequest) },
	OpPing:      func() Message { return new(EmptyRequest) },
	OpWarm:      func() Message { return new(WarmRequest) },
	OpBatch:     func() Message { return new(BatchRequest) },
	OpScrub:     func() Message { return new(ScrubRequest) },
	OpPins:      func() Message { return new(EmptyRequest) },
	OpRevoke:    func() Message { return new(RevokeRequest) },
	OpPolicy:    func() Message { return new(PolicyRequest) },
	OpClear:     func() Message { return new(ClearRequest) },
	OpPurge:     func() Message { return new(PurgeRequest) },
	OpSpaces:    func() Message { return new(SpacesRequest) },
	OpRebuild:   func() Message { return new(RebuildRequest) },
}

// newReply returns an empty reply of each operation.
var newReply = map[Op]func() Message{
	0:           func() Message { return new(ErrorReply) },
	OpHello:     func() Message { return new(HelloReply) },
	OpOpenSpace: func() Message { return new(OpenSpaceReply) },
	OpLookup:    func() Message { return new(LookupReply) },
	OpPrefetch:  func() Message { return new(PrefetchReply) },
	OpWait:      func() Message { return new(JobState) },
	OpCancel:    func() Message { return new(JobState) },
	OpReserve:   func() Message { return new(ReserveReply) },
	OpCommit:    func() Message { return new(StoreReply) },
	OpAbort:     func() Message { return new(EmptyReply) },
	OpPut:       func() Message { return new(StoreReply) },
	OpGet:       func() Message { return new(GetReply) },
	OpRelease:   func() Message { return new(ReleaseReply) },
	OpRenew:     func() Message { return new(RenewReply) },
	OpPin:       func() Message { return new(PinReply) },
	OpUnpin:     func() Message { return new(ChunksReply) },
	OpDelete:    func() Message { return new(ChunksReply) },
	OpFlush:     func() Message { return new(FlushReply) },
	OpStats:     func() Message { return new(StatsReply) },
	OpPing:      func() Message { return new(EmptyReply) },
	OpWarm:      func() Message { return new(WarmReply) },
	OpBatch:     func() Message { return new(BatchReply) },
	OpScrub:     func() Message { return new(ScrubReply) },
	OpPins:      func() Message { return new(PinsReply) },
	OpRevoke:    func() Message { return new(ChunksReply) },
	OpPolicy:    func() Message { return new(PolicyReply) },
	OpClear:     func() Message { return new(ChunksReply) },
	OpPurge:     func() Message { return new(PurgeReply) },
	OpSpaces:    func() Message { return new(SpacesReply) },
	OpRebuild:   func() Message { return new(RebuildReply) },
}

func TestEveryOpIsCovered(t *testing.T) {
	for op := range Op(math.MaxUint8) {
		if op.Known() && (newRequest[op] == nil || newReply[op] == nil) {
			t.Errorf("%s has no request or reply here", op)
		}
	}
}

// olderEnd is where a reply ended before it grew, or -1.
func olderEnd(m Message) int {
	if r, ok := m.(*ReserveReply); ok {
		return 8 + 1 + 4 + len(r.Slots)
	}
	return -1
}

// TestCutShort takes bytes off the end of every golden request and reply: each
// must be refused, and the error name the missing field.
func TestCutShort(t *testing.T) {
	for _, g := range golden {
		body := readGolden(t, g.name)[HeaderBytes:]
		for n := range body {
			m := reflect.New(reflect.TypeOf(g.m).Elem()).Interface().(Message)
			if n == olderEnd(g.m) {
				if err := m.Decode(body[:n]); err != nil {
					t.Errorf("%s of an older daemon: %v", g.name, err)
				}
				continue
			}
			if err := m.Decode(body[:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("%s cut to %d bytes: %v", g.name, n, err)
			}
		}
	}
}

// TestGrowth appends a byte: requests refuse it, replies and pushes pass it over.
func TestGrowth(t *testing.T) {
	for _, g := range golden {
		body := append(readGolden(t, g.name)[HeaderBytes:], 0)
		m := reflect.New(reflect.TypeOf(g.m).Elem()).Interface().(Message)
		err := m.Decode(body)
		if g.h.Kind == KindRequest && !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", g.name, err)
		}
		if g.h.Kind != KindRequest && err != nil {
			t.Errorf("%s: %v", g.name, err)
		}
	}
}

func TestBadRequests(t *testing.T) {
	chain := func(ch Chain) []byte { return (&LookupRequest{Chain: ch}).Append(nil) }
	setByte := func(b []byte, i int, v byte) []byte { b[i] = v; return b }
	tests := []struct {
		name string
		m    Message
		body []byte
		want string
	}{
		{"form", new(LookupRequest), setByte(chain(Chain{}), 4, 9), "chain form"},
		{"chain flags", new(LookupRequest), setByte(chain(Chain{}), 5, 2), "chain flags"},
		{"width", new(LookupRequest), chain(Chain{Form: FormHashes, Width: 12}), "hash width"},
		{"reference count", new(LookupRequest), setByte(chain(Chain{Form: FormRef}), 12, 2), "chain count"},
		{"tier", new(LookupRequest), (&LookupRequest{Search: 8}).Append(nil), "search"},
		{"policy", new(PrefetchRequest), (&PrefetchRequest{Policy: 99}).Append(nil), "policy"},
		{"flags", new(PrefetchRequest), (&PrefetchRequest{Flags: 128}).Append(nil), "flags"},
		{"no bytes", new(ReserveRequest), (&ReserveRequest{Sizes: make(U32s, 4)}).Append(nil), "has no bytes"},
		{"what", new(DeleteRequest), []byte{7, 0, 0}, "what"},
		{"bool", new(FlushRequest), []byte{2, 0, 0, 0, 0, 0, 0}, "durable"},
		{"ranks", new(PrefetchRequest), withOption(OpPrefetch, 1, 6), "ranks"},
		{"prefill rate", new(PrefetchRequest), withOption(OpPrefetch, 2, 4), "prefill rate"},
		{"prefill rate of a lookup", new(LookupRequest), withOption(OpLookup, 2, 4), "unknown option"},
		{"named", new(WarmRequest), []byte{2, 0, 0}, "named"},
		{"batch", new(BatchRequest), append(make([]byte, 11), 1, 4), "at most 1024"},
		{"utf8", new(UnpinRequest), []byte{1, 0, 0xff, 0, 0}, "UTF-8"},
		{"magic", new(HelloRequest), []byte("GET / HTTP/1.1\r\n"), "not the kvstored protocol"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.m.Decode(tt.body)
			if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want one about %q", err, tt.want)
			}
		})
	}
}

// withOption is an empty request with one option of n zero bytes.
func withOption(op Op, tag, n byte) []byte {
	b := newRequest[op]().Append(nil)
	return append(append(b[:len(b)-2], 1, 0, tag, 0, n, 0), make([]byte, n)...)
}

// TestUnknownOption tells options that must be understood from those that
// need not be.
func TestUnknownOption(t *testing.T) {
	var m EmptyRequest
	if err := m.Decode([]byte{1, 0, 1, 0, 0, 0}); !errors.Is(err, ErrUnknownOption) {
		t.Errorf("got %v", err)
	}
	if err := m.Decode([]byte{1, 0, 1, 0x80, 0, 0}); err != nil {
		t.Errorf("got %v", err)
	}
}

// TestClaimsCostNothing checks that a count without its bytes is refused
// without memory in proportion to it.
func TestClaimsCostNothing(t *testing.T) {
	body := (&LookupRequest{}).Append(nil)
	binary.LittleEndian.PutUint32(body[12:], math.MaxUint32)
	var m LookupRequest
	allocs := testing.AllocsPerRun(10, func() {
		if m.Decode(body) == nil {
			t.Error("accepted")
		}
	})
	if allocs > 20 { // the error
		t.Errorf("%v allocations", allocs)
	}
}

// TestDecodeAllocatesNothing holds for the requests and replies of the hot
// path, given that they carry no strings.
func TestDecodeAllocatesNothing(t *testing.T) {
	var (
		lookup  LookupRequest
		state   JobState
		reserve ReserveRequest
		commit  FillRequest
	)
	tokens := (&LookupRequest{Chain: Chain{Tokens: make(U32s, 4<<10)}}).Append(nil)
	refs := (&JobState{Refs: goldenRefs}).Append(nil)
	sizes := (&ReserveRequest{Sizes: ViewU32s([]uint32{1, 2, 3})}).Append(nil)
	fill := (&FillRequest{}).Append(nil)
	allocs := testing.AllocsPerRun(100, func() {
		if lookup.Decode(tokens) != nil || state.Decode(refs) != nil || reserve.Decode(sizes) != nil || commit.Decode(fill) != nil {
			t.Error("refused")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestHelloOfAnotherVersion(t *testing.T) {
	m := HelloRequest{MinVersion: 2, MaxVersion: 3}
	body := m.Append(nil)[:8] // what follows is for those versions to say
	var got HelloRequest
	if err := got.Decode(body); err != nil {
		t.Fatal(err)
	}
	if got.Speaks(Version) || !got.Speaks(3) {
		t.Errorf("decoded %+v", got)
	}
}

func TestLongTextIsCutAtACharacter(t *testing.T) {
	long := strings.Repeat("é", 40_000)
	frame := AppendError(nil, OpPing, 1, StatusInternal, "x"+long)
	var m ErrorReply
	if err := m.Decode(frame[HeaderBytes:]); err != nil {
		t.Fatal(err)
	}
	if !utf8.ValidString(m.Text) || len(m.Text) < 65_000 {
		t.Errorf("%d bytes", len(m.Text))
	}
}

// TestNewerTiers: a peer with more tiers than we know is understood.
func TestNewerTiers(t *testing.T) {
	body := binary.LittleEndian.AppendUint32(nil, 1)
	body = binary.LittleEndian.AppendUint64(body, 256)
	body = append(body, 5)
	for i := range 5 {
		body = appendCount(body, Count{uint32(i), uint64(i)})
	}
	body = binary.LittleEndian.AppendUint32(body, 7)
	var m LookupReply
	if err := m.Decode(body); err != nil {
		t.Fatal(err)
	}
	want := Match{Total: Count{1, 256}, Tiers: TierCounts{{0, 0}, {1, 1}, {2, 2}}}
	if m.Match != want || m.Worth != 7 {
		t.Errorf("got %+v", m)
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		OpPrefetch.String(): "prefetch", Op(77).String(): "op(77)",
		StatusInconsistentChain.Error(): "inconsistent_chain", StatusUnsupported.String(): "unsupported",
		ReasonClosed.String(): "closed", ResultPending.String(): "pending", GrantPending.String(): "pending",
		OutcomeRevoked.String(): "revoked", PutDirect.String(): "direct", FormRef.String(): "ref",
		Kind(9).String(): "kind(9)", PolicyTimeout.String(): "timeout", DeleteSpace.String(): "space",
		StatusOverQuota.String(): "over_quota", ReasonOverQuota.String(): "over_quota", ResultOverQuota.String(): "over_quota",
		RevokeConnection.String(): "connection", OpClear.String(): "clear",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// FuzzRequest: decoding ends without a panic on any bytes, and a request that
// is accepted means the same after encoding it again.
func FuzzRequest(f *testing.F) {
	for _, g := range golden {
		if g.h.Kind == KindRequest {
			f.Add(byte(g.h.Op), readGolden(f, g.name)[HeaderBytes:])
		}
	}
	f.Fuzz(func(t *testing.T, op byte, body []byte) { checkStable(t, newRequest[Op(op)], body) })
}

// FuzzReply is FuzzRequest for replies and pushes.
func FuzzReply(f *testing.F) {
	for _, g := range golden {
		if g.h.Kind != KindRequest {
			op := g.h.Op
			if g.h.Status != StatusOK {
				op = 0
			}
			f.Add(byte(op), readGolden(f, g.name)[HeaderBytes:])
		}
	}
	f.Fuzz(func(t *testing.T, op byte, body []byte) { checkStable(t, newReply[Op(op)], body) })
}

func checkStable(t *testing.T, make func() Message, body []byte) {
	if make == nil {
		return
	}
	m := make()
	if err := m.Decode(body); err != nil {
		if !errors.Is(err, ErrMalformed) {
			t.Fatalf("error of another kind: %v", err)
		}
		return
	}
	if h, ok := m.(*HelloRequest); ok && !h.Speaks(Version) {
		return
	}
	once := m.Append(nil)
	again := make()
	if err := again.Decode(once); err != nil {
		t.Fatalf("%+v was accepted, but not when encoded again: %v", m, err)
	}
	if twice := again.Append(nil); !bytes.Equal(once, twice) {
		t.Fatalf("%x became %x", once, twice)
	}
}
