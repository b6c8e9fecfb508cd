package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

// newRequest returns an empty request of each operation.
var newRequest = map[Op]func() Message{
	OpHello:     func() Message { return new(HelloRequest) },
	OpOpenSpace: func() Message { return new(OpenSpaceRequest) },
	OpLookup:    func() Message { return new(LookupRequest) },
	OpPrefetch:  func() Message { return new(PrefetchRequest) },
	OpWait:      func() Message { return new(WaitRequest) },
	OpCancel:    func() Message { return new(IDRequest) },
	OpReserve:   func() Message { return new(ReserveRequest) },
	OpCommit:    func() Message { return new(FillRequest) },
	OpAbort:     func() Message { return new(FillRequest) },
	OpPut:       func() Message { return new(PutRequest) },
	OpGet:       func() Message { return new(GetRequest) },
	OpRelease:   func() Message { return new(IDRequest) },
	OpRenew:     func() Message { return new(IDRequest) },
	OpPin:       func() Message { return new(PinRequest) },
	OpDelete:    func() Message { return new(DeleteRequest) },
	OpFlush:     func() Message { return new(FlushRequest) },
	OpStats:     func() Message { return new(EmptyRequest) },
	OpPing:      func() Message { return new(EmptyRequest) },
	OpWarm:      func() Message { return new(WarmRequest) },
	OpBatch:     func() Message { return new(BatchRequest) },
	OpHint:      func() Message { return new(HintRequest) },
	OpEvents:    func() Message { return new(EventsRequest) },
}

// newReply returns an empty reply of each operation.
var newReply = map[Op]func() Message{
	0:           func() Message { return new(ErrorReply) },
	OpHello:     func() Message { return new(HelloReply) },
	OpOpenSpace: func() Message { return new(OpenSpaceReply) },
	OpLookup:    func() Message { return new(LookupReply) },
	OpPrefetch:  func() Message { return new(PrefetchReply) },
	OpWait:      func() Message { return new(JobState) },
	OpCancel:    func() Message { return new(CodeReply) },
	OpReserve:   func() Message { return new(ReserveReply) },
	OpCommit:    func() Message { return new(StoreReply) },
	OpAbort:     func() Message { return new(EmptyReply) },
	OpPut:       func() Message { return new(StoreReply) },
	OpGet:       func() Message { return new(GetReply) },
	OpRelease:   func() Message { return new(ReleaseReply) },
	OpRenew:     func() Message { return new(RenewReply) },
	OpPin:       func() Message { return new(PinReply) },
	OpDelete:    func() Message { return new(DeleteReply) },
	OpFlush:     func() Message { return new(FlushReply) },
	OpStats:     func() Message { return new(StatsReply) },
	OpPing:      func() Message { return new(EmptyReply) },
	OpWarm:      func() Message { return new(WarmReply) },
	OpBatch:     func() Message { return new(BatchReply) },
	OpHint:      func() Message { return new(HintReply) },
	OpEvents:    func() Message { return new(EventsReply) },
}

func TestEveryOpIsCovered(t *testing.T) {
	for op := range Op(math.MaxUint8) {
		if op.Known() && (newRequest[op] == nil || newReply[op] == nil) {
			t.Errorf("%s has no request or reply here", op)
		}
	}
}

// canEnd reports whether a message may be cut there: the bytes that are missing are
// padding.
func canEnd(g Message, body []byte, n int) bool {
	_, put := g.(*PutRequest)
	_, get := g.(*GetReply)
	return (put || get) && len(bytes.TrimRight(body[n:], "\x00")) == 0 && len(body)-n < 8
}

// TestCutShort takes bytes off the end of every golden request and reply: each
// must be refused, and the error name the missing field.
func TestCutShort(t *testing.T) {
	for _, g := range golden {
		body := readGolden(t, g.name)[HeaderBytes:]
		for n := range body {
			if canEnd(g.m, body, n) {
				continue
			}
			m := reflect.New(reflect.TypeOf(g.m).Elem()).Interface().(Message)
			if err := m.Decode(body[:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("%s cut to %d bytes: %v", g.name, n, err)
			}
		}
	}
}

// TestGrowth appends 8 bytes: requests refuse them, replies and pushes pass them over.
func TestGrowth(t *testing.T) {
	for _, g := range golden {
		body := append(readGolden(t, g.name)[HeaderBytes:], 1, 0, 0, 0, 0, 0, 0, 0)
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
	set := func(m Message, i int, v byte) []byte { b := m.Append(nil); b[i] = v; return b }
	lookup := &LookupRequest{}
	tests := []struct {
		name string
		m    Message
		body []byte
		want string
	}{
		{"form", new(LookupRequest), set(lookup, 12, 9), "chain form"},
		{"chain flags", new(LookupRequest), set(lookup, 13, 2), "chain flags"},
		{"chain zeros", new(LookupRequest), set(lookup, 14, 2), "send zeros"},
		{"last tokens of tokens", new(LookupRequest), set(lookup, 20, 2), "last tokens"},
		{"width", new(LookupRequest), chain(Chain{Form: FormHashes, Width: 12, Hashes: make([]byte, 12)}), "hash width"},
		{"items of a reference", new(LookupRequest), set(&LookupRequest{Chain: Chain{Form: FormRef}}, 32, 1), "chain items"},
		{"tier", new(LookupRequest), (&LookupRequest{Search: 8}).Append(nil), "search"},
		{"policy", new(PrefetchRequest), (&PrefetchRequest{Policy: 99}).Append(nil), "policy"},
		{"flags", new(PrefetchRequest), (&PrefetchRequest{Flags: 128}).Append(nil), "flags"},
		{"no bytes", new(ReserveRequest), (&ReserveRequest{Sizes: make(U32s, 4)}).Append(nil), "has no bytes"},
		{"sizes that take padding for payload", new(PutRequest), (&PutRequest{Sizes: ViewU32s([]uint32{8}), Payloads: []byte("hello")}).Append(nil), "5 bytes of payloads"},
		{"bool", new(FlushRequest), set(&FlushRequest{}, 0, 2), "durable"},
		{"ranks", new(PrefetchRequest), withOption(&PrefetchRequest{}, tagRanks, appendArray(nil, 8, make([]byte, 8))), "ranks"},
		{"prefill rate", new(PrefetchRequest), withOption(&PrefetchRequest{}, tagPrefillRate, make([]byte, 4)), "prefill rate"},
		{"ranks of a flush", new(FlushRequest), withOption(&FlushRequest{}, tagRanks, nil), "unknown option"},
		{"short deadline", new(FlushRequest), withOption(&FlushRequest{}, tagDeadline, make([]byte, 3)), "deadline"},
		{"later deadline", new(FlushRequest), withOption(&FlushRequest{}, tagDeadline, []byte{1, 0, 0, 0, 1}), "unknown option"},
		{"deadline twice", new(FlushRequest), twice((&FlushRequest{Deadline: Deadline{Given: true}}).Append(nil)), "none twice"},
		{"an age of 0", new(ReserveRequest), withOption(&ReserveRequest{Sizes: ViewU32s([]uint32{1})}, tagMaxAge, make([]byte, 4)), "send seconds"},
		{"no number of an age", new(ReserveRequest), withOption(&ReserveRequest{Sizes: ViewU32s([]uint32{1})}, tagMaxAge, make([]byte, 2)), "max age"},
		{"longer elements", new(ReserveRequest), longer((&ReserveRequest{Sums: Sums(nil).Add(Sum{})}).Append(nil)), "unknown option"},
		{"shorter elements", new(ReserveRequest), withOption(&ReserveRequest{}, tagSums, appendArray(nil, 8, make([]byte, 8))), "at least 16"},
		{"long text", new(PinRequest), (&PinRequest{LookupID: strings.Repeat("x", 1025)}).Append(nil), "at most 1024"},
		{"warm of nothing", new(WarmRequest), (&WarmRequest{Chain: Chain{Form: FormNone}}).Append(nil), "lookup id"},
		{"batch", new(BatchRequest), (&BatchRequest{Prompts: make([]BatchPrompt, MaxBatch+1)}).Append(nil), "at most 1024"},
		{"utf8", new(PinRequest), (&PinRequest{LookupID: "\xff"}).Append(nil), "UTF-8"},
		{"padding", new(PinRequest), set(&PinRequest{LookupID: "x"}, 55, 1), "send zeros"},
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

// withOption is a request that ends in one option.
func withOption(m Message, tag uint16, value []byte) []byte {
	b := m.Append(nil)
	l := beginOptions(b[:len(b)-8], Deadline{})
	at := l.begin(tag)
	l.dst = append(l.dst, value...)
	l.finish(at)
	return l.end()
}

// twice repeats the one option of 16 bytes that a body ends in.
func twice(b []byte) []byte {
	b[len(b)-24] = 2
	return append(b, b[len(b)-16:]...)
}

// longer has the one element of 16 bytes that a body ends in grow by 8, not all zero.
func longer(b []byte) []byte {
	head := len(b) - 16 - 8 - 8 // of the option and its array
	b[head+4] += 8
	b[head+8+4] += 8
	return append(b, 0, 0, 0, 0, 0, 0, 0, 1)
}

// TestUnknownOption tells options that must be understood from those that
// need not be.
func TestUnknownOption(t *testing.T) {
	var request EmptyRequest
	var reply CodeReply
	for _, m := range []Message{&request, &reply} {
		if err := m.Decode(withOption(m, optionCritical|0x77, nil)); !errors.Is(err, ErrUnknownOption) {
			t.Errorf("got %v", err)
		}
		if err := m.Decode(withOption(m, 0x77, []byte{1})); err != nil {
			t.Errorf("got %v", err)
		}
	}
}

// TestNewer: what a newer daemon adds is passed over.
func TestNewer(t *testing.T) {
	var lookup LookupReply
	if err := lookup.Decode(readGolden(t, "newer_lookup_reply")[HeaderBytes:]); err != nil || lookup != (LookupReply{Match: goldenMatch, Worth: 4}) {
		t.Errorf("got %+v, %v", lookup, err)
	}
	var state JobState
	err := state.Decode(readGolden(t, "newer_wait_reply")[HeaderBytes:])
	if err != nil || !state.Done() || state.Refs.Len() != 1 || state.Refs.At(0) != goldenRefs.At(0) {
		t.Errorf("got %+v, %v", state, err)
	}
}

// TestVersionRefusal: the refusal of a version is that of all versions.
func TestVersionRefusal(t *testing.T) {
	frame := readGolden(t, "version_reply")
	const text = "update the older"
	if got := VersionRefusal(frame[HeaderBytes:]); got != text {
		t.Errorf("got %q", got)
	}
	if got := AppendError(nil, OpHello, 1, CodeVersion, Refusal(CodeVersion, text)); !bytes.Equal(got, frame) {
		t.Errorf("got %x, want %x", got, frame)
	}
	if got := VersionRefusal(readGolden(t, "version_1_reply")[HeaderBytes:]); !strings.Contains(got, "the daemon 1; update the older one") {
		t.Errorf("a daemon of version 1: %q", got)
	}
	for _, name := range []string{"version_1_request", "version_1_python_request"} {
		var hello HelloRequest
		if err := hello.Decode(readGolden(t, name)[HeaderBytes:]); err != nil || hello.Speaks(Version) || !hello.Speaks(1) {
			t.Errorf("%s: got %+v, %v", name, hello, err)
		}
	}
}

// TestClaimsCostNothing checks that a count without its bytes is refused
// without memory in proportion to it.
func TestClaimsCostNothing(t *testing.T) {
	body := (&LookupRequest{}).Append(nil)
	binary.LittleEndian.PutUint32(body[32:], math.MaxUint32)
	body[36] = 4
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
	m := HelloRequest{MinVersion: 3, MaxVersion: 4}
	body := m.Append(nil)[:8] // what follows is for those versions to say
	var got HelloRequest
	if err := got.Decode(body); err != nil {
		t.Fatal(err)
	}
	if got.Speaks(Version) || !got.Speaks(4) {
		t.Errorf("decoded %+v", got)
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		OpPrefetch.String(): "prefetch", Op(77).String(): "op(77)",
		CodeInconsistentChain.Error(): "inconsistent_chain", CodeUnsupported.String(): "unsupported",
		CodeClosed.String(): "closed", CodePending.String(): "pending", CodeGroup.String(): "group", Code(999).String(): "code(999)",
		PutStaged.String(): "staged", FormRef.String(): "ref", Kind(9).String(): "kind(9)", PolicyTimeout.String(): "timeout",
		RetryLater.String(): "later",
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
			if g.h.Code != CodeOK {
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

// TestKeptChainBytes: a lookup and a reserve of 512 chunks take at most 60 % of what
// version 1 took: it sent 20 bytes a chunk with each.
func TestKeptChainBytes(t *testing.T) {
	const chunks = 512
	lookup := LookupRequest{Chain: Chain{Form: FormHashes, Width: 16, Hashes: make([]byte, 16*chunks), ID: 1}}
	reserve := ReserveRequest{Chain: Chain{Form: FormKept, ID: 1}, Sizes: ViewU32s([]uint32{1 << 20})}
	now := len(AppendRequest(AppendRequest(nil, OpLookup, 1, &lookup), OpReserve, 2, &reserve))
	if then := 2*(HeaderBytes+16+20*chunks) + 3 + 19; now*100 > then*60 {
		t.Errorf("%d bytes, %d in version 1", now, then)
	}
}
