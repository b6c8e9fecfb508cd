package wire

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/key"
)

const goldenDir = "../../testdata/wire"

// parseHex reads a golden frame: hexadecimal bytes, and comments that reach
// from # to the end of the line.
func parseHex(t testing.TB, text string) []byte {
	t.Helper()
	var digits strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func readGolden(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(goldenDir, name+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	return parseHex(t, string(text))
}

var (
	goldenSpace = key.Space{
		Model: "llama-3-8b", Revision: "main", World: 2, Worker: 1, DType: "bf16", ChunkTokens: 256,
		Method: key.SHA256, Salt: "s3cret", Tags: []key.Tag{{Name: "layout", Value: "hnd"}},
	}
	goldenTokens = Chain{Space: 1, Tokens: ViewU32s([]uint32{101, 102, 103, 104, 105})}
	goldenRef    = Chain{Form: FormRef, Ref: 7}
	goldenMatch  = Match{Total: Count{3, 768}, Tiers: TierCounts{{1, 256}, {2, 512}}}
	goldenRefs   = Refs(nil).
			Add(Ref{8192, 0x0102030405060708, 65536, 256}).
			Add(Ref{73728, 0x1112131415161718, 65536, 256}).
			Add(Ref{139264, 0x2122232425262728, 65536, 256})
	goldenWants = FeatureArena | FeatureStaging | FeaturePushes
	helloSum    = uint64(0x9555e8555c62dcfd)
)

func goldenHashes(n int) []byte {
	var raw []byte
	for i := range n {
		for k := range 8 {
			raw = append(raw, byte(0x10*(i+1)+k))
		}
	}
	return raw
}

// goldenShown is goldenSpace as the daemon tells of it.
func goldenShown() key.Space {
	s := goldenSpace
	s.Salt, s.SaltDigest = "", key.Hash(sequence(0xb0, 0xc0))
	return s
}

func goldenInfo(handle uint32) SpaceInfo {
	info := SpaceInfo{Handle: handle, ChunkTokens: 256}
	for i := range info.ID {
		info.ID[i] = byte(0xa0 + i)
	}
	return info
}

func sequence(from, to byte) []byte {
	var b []byte
	for ; from < to; from++ {
		b = append(b, from)
	}
	return b
}

// golden lists every golden frame. Frames of a kind and op whose number is not
// that of the operation say so.
var golden = []struct {
	name string
	h    Header // BodyBytes is checked against the body
	m    Message
}{
	{"hello_request", request(OpHello), &HelloRequest{
		MinVersion: 1, MaxVersion: 1, Wants: goldenWants, StagingBytes: 64 << 20, Name: "worker-1",
		HasSpace: true, Space: goldenSpace,
	}},
	{"hello_reply", reply(OpHello), &HelloReply{
		Version: 1, Rights: RightRead | RightWrite, Puts: PutStaged, Granted: goldenWants,
		Epoch: 0x1122334455667788, ArenaBytes: 4 << 30, StagingBytes: 64 << 20, Descriptors: 2,
		MaxBodyBytes: MaxBodyBytes, MaxPayloadBytes: MaxPayloadBytes, LeaseMillis: 300_000,
		HasSpace: true, Space: goldenInfo(1), Server: "kvstored 1.0.0",
	}},
	{"open_space_request", request(OpOpenSpace), &OpenSpaceRequest{goldenSpace}},
	{"open_space_reply", reply(OpOpenSpace), &OpenSpaceReply{goldenInfo(2)}},
	{"lookup_request", request(OpLookup), &LookupRequest{Chain: goldenTokens, Search: TierCPU | TierDisk}},
	{"lookup_hashes_request", request(OpLookup), &LookupRequest{Chain: Chain{
		Space: 2, Form: FormHashes, SaveUnfull: true, Width: 8, Skip: 1,
		Lengths: ViewU32s([]uint32{256, 256, 100}), Hashes: goldenHashes(3),
	}}},
	{"lookup_alone_request", request(OpLookup), &LookupRequest{Chain: Chain{
		Space: 2, Form: FormHashes, SaveUnfull: true, Alone: true, Width: 8,
		Lengths: ViewU32s([]uint32{256, 256}), Hashes: goldenHashes(2),
	}}},
	{"lookup_reply", reply(OpLookup), &LookupReply{goldenMatch, 4}},
	{"prefetch_request", request(OpPrefetch), &PrefetchRequest{
		Chain: Chain{Space: 1, SaveUnfull: true, Tokens: goldenTokens.Tokens},
		Flags: PrefetchPin, Policy: PolicyTimeout, DeadlineMillis: 2000, LookupID: "req-42",
		Configs: Pairs(nil).Add("priority", "high"),
	}},
	{"prefetch_reply", reply(OpPrefetch), &PrefetchReply{Job: 7, Match: goldenMatch, State: JobState{
		Ready: Count{1, 256}, Tiers: TierCounts{{1, 256}}, Refs: goldenRefs.Slice(0, 1),
	}, Worth: 4}},
	{"prefetch_push", Header{Kind: KindPush, Op: OpPrefetch, ID: 7}, &JobState{
		Done: true, Reason: ReasonComplete, Ready: Count{3, 768}, Tiers: TierCounts{{1, 256}, {2, 512}},
		First: 1, Refs: goldenRefs.Slice(1, 3),
	}},
	{"wait_request", request(OpWait), &WaitRequest{Job: 7, MinTokens: 768, TimeoutMillis: 500, From: FromUnsent}},
	{"wait_reply", reply(OpWait), &JobState{
		Done: true, Reason: ReasonFailed, FailedTier: "disk", Ready: Count{2, 512},
		Tiers: TierCounts{{1, 256}, {1, 256}}, First: 1, Refs: goldenRefs.Slice(1, 2),
	}},
	{"cancel_request", request(OpCancel), &JobRequest{7}},
	{"cancel_reply", reply(OpCancel), &JobState{
		Done: true, Reason: ReasonCancelled, Ready: Count{1, 256}, Tiers: TierCounts{{1, 256}}, First: 1,
	}},
	{"reserve_request", request(OpReserve), &ReserveRequest{
		Chain: goldenRef, First: 1, Count: 3, Sizes: ViewU32s([]uint32{65536}),
	}},
	{"reserve_reply", reply(OpReserve), &ReserveReply{Fill: 8, Reason: ReasonNoSpace, Slots: Slots(nil).
		Add(Slot{GrantGranted, 65536, 4096}).Add(Slot{GrantExists, 65536, 0})}},
	{"reserve_sums_request", request(OpReserve), &ReserveRequest{
		Chain: goldenRef, First: 1, Count: 3, Sizes: ViewU32s([]uint32{65536}), Sums: Sums(nil).Add(Sum{1, 0x0102030405060708}),
	}},
	{"reserve_sums_reply", reply(OpReserve), &ReserveReply{Fill: 8, Reason: ReasonNoSpace, Slots: Slots(nil).
		Add(Slot{GrantGranted, 65536, 4096}).Add(Slot{GrantExists, 65536, 0}), Differ: ViewU32s([]uint32{1})}},
	{"commit_request", request(OpCommit), &FillRequest{Fill: 8}},
	{"commit_reply", reply(OpCommit), &StoreReply{Results(nil).
		Add(Stored{ResultStored, 0x0102030405060708}).Add(Stored{ResultNotGranted, 0})}},
	{"abort_request", request(OpAbort), &FillRequest{Fill: 8, First: 1, Count: 2}},
	{"abort_reply", reply(OpAbort), &EmptyReply{}},
	{"put_request", request(OpPut), &PutRequest{
		Chain: Chain{
			Space: 2, Form: FormHashes, SaveUnfull: true, Width: 8,
			Lengths: ViewU32s([]uint32{256, 256}), Hashes: goldenHashes(2),
		},
		Sizes: ViewU32s([]uint32{5, 3}), Payloads: []byte("helloKVS"),
	}},
	{"put_reply", reply(OpPut), &StoreReply{Results(nil).
		Add(Stored{ResultExists, helloSum}).Add(Stored{ResultOverBudget, 0})}},
	{"get_request", request(OpGet), &GetRequest{Chain: goldenRef, MaxChunks: 4, MaxBytes: 1 << 20, DeadlineMillis: 100}},
	{"get_reply", reply(OpGet), &GetReply{Chunks(nil).Add(Chunk{5, 256, helloSum}), []byte("hello")}},
	{"release_request", request(OpRelease), &JobRequest{7}},
	{"release_reply", reply(OpRelease), &ReleaseReply{OutcomeOK}},
	{"renew_request", request(OpRenew), &JobRequest{7}},
	{"renew_reply", reply(OpRenew), &RenewReply{300_000}},
	{"pin_request", request(OpPin), &PinRequest{goldenTokens, "req-42", 60_000}},
	{"pin_reply", reply(OpPin), &PinReply{Count{3, 768}}},
	{"unpin_request", request(OpUnpin), &UnpinRequest{"req-42"}},
	{"unpin_reply", reply(OpUnpin), &ChunksReply{3}},
	{"delete_chunks_request", request(OpDelete), &DeleteRequest{What: DeleteChunks, Space: 1, Width: 16, Hashes: sequence(0x10, 0x30)}},
	{"delete_chain_request", request(OpDelete), &DeleteRequest{What: DeleteChain, Chain: goldenTokens}},
	{"delete_space_request", request(OpDelete), &DeleteRequest{What: DeleteSpace, Space: 1}},
	{"delete_reply", reply(OpDelete), &ChunksReply{2}},
	{"flush_request", request(OpFlush), &FlushRequest{Durable: true, TimeoutMillis: 10_000}},
	{"flush_reply", reply(OpFlush), &FlushReply{40, 40 * 65536, Leftovers(nil).Add(Leftover{"tier_off", 1, 65536})}},
	{"stats_request", request(OpStats), &EmptyRequest{}},
	{"stats_reply", reply(OpStats), &StatsReply{[]byte(`{"uptime_seconds":1}`)}},
	{"ping_request", request(OpPing), &EmptyRequest{}},
	{"ping_reply", reply(OpPing), &EmptyReply{}},
	{"prefetch_ranks_request", request(OpPrefetch), &PrefetchRequest{
		Chain: Chain{Space: 1, Tokens: goldenTokens.Tokens}, Configs: Pairs{},
		Ranks: ViewU32s([]uint32{2, 3}), PrefillRate: 20_000,
	}},
	{"prefetch_advice_reply", reply(OpPrefetch), &PrefetchReply{Job: 7, Match: goldenMatch, State: JobState{
		Ready: Count{1, 256}, Tiers: TierCounts{{1, 256}}, Refs: goldenRefs.Slice(0, 1),
	}, Advice: &Advice{Load: Count{2, 512}, Micros: 1500}, Worth: 4}},
	{"lookup_ranks_request", request(OpLookup), &LookupRequest{Chain: goldenRef, Ranks: ViewU32s([]uint32{2, 3})}},
	{"warm_request", request(OpWarm), &WarmRequest{Chain: goldenTokens, Search: TierDisk, TimeoutMillis: 500}},
	{"warm_named_request", request(OpWarm), &WarmRequest{Named: true, LookupID: "req-42"}},
	{"warm_reply", reply(OpWarm), &WarmReply{Match: goldenMatch, State: JobState{
		Done: true, Reason: ReasonComplete, Ready: Count{3, 768}, Tiers: TierCounts{{1, 256}, {2, 512}},
	}}},
	{"batch_request", request(OpBatch), &BatchRequest{
		Policy: PolicyTimeout, DeadlineMillis: 2000, MaxOvertaken: 16, Prompts: []BatchPrompt{
			{Chain: goldenTokens, LookupID: "req-42"}, {Chain: goldenRef, Overtaken: 3},
		}, PrefillRate: 20_000,
	}},
	{"batch_configs_request", request(OpBatch), &BatchRequest{
		Policy: PolicyTimeout, DeadlineMillis: 2000, MaxOvertaken: 16, Prompts: []BatchPrompt{
			{Chain: goldenTokens, LookupID: "req-42"}, {Chain: goldenRef, Overtaken: 3},
		}, PrefillRate: 20_000, Configs: Pairs(nil).Add("priority", "high"),
	}},
	{"batch_reply", reply(OpBatch), &BatchReply{Jobs: []BatchJob{
		{Prefetch: PrefetchReply{Job: 7, Match: goldenMatch, State: JobState{
			Ready: Count{1, 256}, Tiers: TierCounts{{1, 256}}, Refs: goldenRefs.Slice(0, 1),
		}, Advice: &Advice{Load: Count{2, 512}, Micros: 1500}, Worth: 4}},
		{Status: StatusUnknownJob, Text: "no such job"},
	}, Order: ViewU32s([]uint32{1, 0})}},
	{"scrub_request", request(OpScrub), &ScrubRequest{BytesPerSecond: 200 << 20}},
	{"scrub_reply", reply(OpScrub), &ScrubReply{Chunks: 40, Bytes: 40 * 65536, Wrong: 1}},
	{"pins_request", request(OpPins), &EmptyRequest{}},
	{"pins_reply", reply(OpPins), &PinsReply{
		Pins: []PinInfo{{
			LookupID: "req-42", Space: goldenInfo(1).ID, Connection: 5, Bytes: 3 * 65536, Chunks: 3, ExpiresMillis: 60_000,
		}},
		Holders: []Holder{{Connection: 5, UID: 1000, Name: "worker-1", LeaseBytes: 65536, PinBytes: 3 * 65536}},
	}},
	{"revoke_pin_request", request(OpRevoke), &RevokeRequest{What: RevokePin, LookupID: "req-42"}},
	{"revoke_pins_request", request(OpRevoke), &RevokeRequest{What: RevokePins}},
	{"revoke_connection_request", request(OpRevoke), &RevokeRequest{What: RevokeConnection, Connection: 5}},
	{"revoke_reply", reply(OpRevoke), &ChunksReply{4}},
	{"policy_request", request(OpPolicy), &PolicyRequest{TierCPU, "s3fifo"}},
	{"policy_reply", reply(OpPolicy), &PolicyReply{
		Tiers: []TierPolicy{{TierCPU, "s3fifo"}, {TierDisk, "lru"}}, Names: []string{"lru", "s3fifo"},
	}},
	{"clear_request", request(OpClear), &ClearRequest{TierCPU}},
	{"clear_reply", reply(OpClear), &ChunksReply{1000}},
	{"purge_request", request(OpPurge), &PurgeRequest{Space: goldenInfo(1).ID, After: "7f/x", Dry: true}},
	{"purge_reply", reply(OpPurge), &PurgeReply{Known: 40, Found: 1000, Bytes: 1000 * 65536, Next: "80/y"}},
	{"rebuild_request", request(OpRebuild), &RebuildRequest{Begin: true}},
	{"rebuild_reply", reply(OpRebuild), &RebuildReply{
		Running: true, Bytes: 3 << 30, TotalBytes: 8 << 30, Headers: 700, Restored: 40, Dropped: 2, Resealed: 1, Micros: 2_500_000,
	}},
	{"spaces_request", request(OpSpaces), &SpacesRequest{After: key.SpaceID(sequence(0x10, 0x20))}},
	{"spaces_reply", reply(OpSpaces), &SpacesReply{Spaces: []SpaceUse{
		{ID: key.SpaceID(sequence(0x20, 0x30)), Chunks: 7},
		{ID: goldenInfo(1).ID, Chunks: 1000, HotBytes: 40 * 65536, DiskBytes: 1000 * 65536, Connections: 2, Kind: SpaceOpened, Space: goldenShown()},
		{ID: key.SpaceID(sequence(0xc0, 0xd0)), Chunks: 3, Kind: SpaceFront, Front: "resp"},
	}, More: true}},
	{"error_reply", Header{Kind: KindReply, Op: OpRelease, Status: StatusUnknownJob, ID: 21}, &ErrorReply{
		"job 9 is not live: it was released, cancelled or never made on this connection",
	}},
}

func request(op Op) Header { return Header{Kind: KindRequest, Op: op, ID: uint64(op)} }
func reply(op Op) Header   { return Header{Kind: KindReply, Op: op, ID: uint64(op)} }

func TestGoldenFrames(t *testing.T) {
	seen := map[string]bool{"ping_option_request": true} // has an option, which nothing here writes
	for _, g := range golden {
		seen[g.name] = true
		t.Run(g.name, func(t *testing.T) {
			frame := readGolden(t, g.name)
			h, body := DecodeHeader(frame), frame[HeaderBytes:]
			g.h.BodyBytes = uint32(len(body))
			if h != g.h {
				t.Errorf("header is %+v, want %+v", h, g.h)
			}
			got := reflect.New(reflect.TypeOf(g.m).Elem()).Interface().(Message)
			if err := got.Decode(body); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, g.m) {
				t.Errorf("decoded\n%+v, want\n%+v", got, g.m)
			}
			encoded := g.m.Append(Begin(nil, g.h))
			End(encoded, 0)
			if !bytes.Equal(encoded, frame) {
				t.Errorf("encoded\n%x, want\n%x", encoded, frame)
			}
		})
	}
	files, err := filepath.Glob(filepath.Join(goldenDir, "*.hex"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".hex"); !seen[name] {
			t.Errorf("%s is not in the table", f)
		}
	}
}

// TestProtocolExamples keeps the examples of the document identical to the
// golden frames.
func TestProtocolExamples(t *testing.T) {
	doc, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, block := range strings.Split(string(doc), "\n```hex ")[1:] {
		name, rest, _ := strings.Cut(block, "\n")
		text, _, ok := strings.Cut(rest, "```")
		file, err := os.ReadFile(filepath.Join(goldenDir, name+".hex"))
		if err != nil || !ok {
			t.Fatalf("example %q: %v", name, err)
		}
		if text != string(file) {
			t.Errorf("example %q differs from its golden frame", name)
		}
		shown[name] = true
	}
	for _, g := range golden {
		if !shown[g.name] {
			t.Errorf("golden frame %q is not shown", g.name)
		}
	}
}

func TestIgnorableOption(t *testing.T) {
	frame := readGolden(t, "ping_option_request")
	var m EmptyRequest
	if err := m.Decode(frame[HeaderBytes:]); err != nil {
		t.Fatal(err)
	}
}

// TestProtocolCodes keeps the document's table of errors complete.
func TestProtocolCodes(t *testing.T) {
	doc, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range statusNames[1:] {
		if row := fmt.Sprintf("\n| %d | `%s` |", i+1, name); !strings.Contains(string(doc), row) {
			t.Errorf("no row %q", row)
		}
	}
}
