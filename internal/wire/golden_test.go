package wire

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/key"
)

var goldenNeeds = Needs(nil).
	Add(Need{Space: 1, Chunks: 3, Tiers: [TierCount]uint32{1, 2}}).
	Add(Need{Space: 2, First: 2, Chunks: 1, Tiers: [TierCount]uint32{0, 1}})

var goldenGrouped = Grouped{Tokens: 768, Run: 1024, Lacks: 2, Needs: goldenNeeds}

var goldenLengths = Grouped{Tokens: 768, Run: 1024, Lacks: 2, Needs: goldenNeeds, Lengths: ViewU32s([]uint32{768, 256})}

var update = flag.Bool("update", false, "write the golden frames")

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
	goldenRef    = Chain{Form: FormRef, ID: 7}
	goldenMatch  = Match{Total: Count{768, 3}, Tiers: TierCounts{{256, 1}, {512, 2}}}
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

// golden lists every golden frame.
var golden = []struct {
	name string
	h    Header // BodyBytes is checked against the body
	m    Message
}{
	{"hello_request", request(OpHello), &HelloRequest{
		MinVersion: 2, MaxVersion: 2, Wants: goldenWants, StagingBytes: 64 << 20, Name: "worker-1",
		HasSpace: true, Space: goldenSpace,
	}},
	{"hello_bounds_request", request(OpHello), &HelloRequest{
		MinVersion: 2, MaxVersion: 3, Wants: goldenWants, MaxRequest: 1 << 20, MaxReply: 2 << 20, Credit: 4 << 20, Name: "worker-2",
	}},
	{"hello_reply", reply(OpHello), &HelloReply{
		Version: 2, Rights: RightRead | RightWrite, Puts: PutStaged, Granted: goldenWants,
		Epoch: 0x1122334455667788, Connection: 5, ArenaBytes: 4 << 30, StagingBytes: 64 << 20, Descriptors: 2,
		MaxPayload: MaxPayloadBytes, MaxRequest: MaxBodyBytes, MaxReply: MaxBodyBytes, Credit: MaxBodyBytes,
		Limits: Limits{
			LeaseMillis: 300_000, PinMillis: 3_600_000, PrefetchMillis: 1_000, PrefetchMicrosPer1024: 50_000,
			HelloMillis: 10_000, StallMillis: 30_000, Requests: 1024, Jobs: 1024, Fills: 1024, Pins: 1024, Spaces: 1024,
			UserJobs: 16384, UnreadBytes: 1 << 20, KeptChains: 16, KeptChunks: 65536, Warms: 64,
			ChunkTokens: 256, SpinMicros: 1_000,
		},
		HasSpace: true, Space: goldenInfo(0), Server: "kvstored 1.0.0",
	}},
	{"open_space_request", request(OpOpenSpace), &OpenSpaceRequest{Space: goldenSpace}},
	{"open_space_distrust_request", request(OpOpenSpace), &OpenSpaceRequest{Space: goldenSpace, Distrust: true}},
	{"open_space_reply", reply(OpOpenSpace), &OpenSpaceReply{goldenInfo(2)}},
	{"lookup_request", request(OpLookup), &LookupRequest{Chain: goldenTokens, Search: TierCPU | TierDisk}},
	{"lookup_hashes_request", request(OpLookup), &LookupRequest{Chain: Chain{
		Space: 2, Form: FormHashes, SaveUnfull: true, Width: 8, Skip: 1, LastTokens: 100, Hashes: goldenHashes(3), ID: 3,
	}}},
	{"lookup_kept_request", request(OpLookup), &LookupRequest{Chain: Chain{Form: FormKept, Skip: 1, ID: 3}}},
	{"lookup_alone_request", request(OpLookup), &LookupRequest{Chain: Chain{
		Space: 2, Form: FormHashes, SaveUnfull: true, Alone: true, Width: 8, Hashes: goldenHashes(2),
	}}},
	{"lookup_ranks_request", request(OpLookup), &LookupRequest{
		Chain: goldenRef, Shared: Shared{Ranks: ViewU32s([]uint32{2, 3})},
	}},
	{"lookup_groups_request", request(OpLookup), &LookupRequest{Chain: goldenRef, Shared: Shared{
		Groups: Groups(nil).Add(Group{2, GroupWindow, 4096}).Add(Group{3, GroupState, 0}),
	}}},
	{"lookup_lengths_request", request(OpLookup), &LookupRequest{Chain: goldenRef, Shared: Shared{
		Groups: Groups(nil).Add(Group{2, GroupState, 0}), Lengths: 8,
	}}},
	{"lookup_grain_request", request(OpLookup), &LookupRequest{
		Chain:  Chain{Space: 2, Form: FormHashes, Width: 8, Skip: 1, Hashes: goldenHashes(4)},
		Shared: Shared{Groups: Groups(nil).Add(Group{Space: 2}).Add(Group{3, GroupWindow, 128}), Grain: 16},
	}},
	{"lookup_reply", reply(OpLookup), &LookupReply{Match: goldenMatch, Worth: 4}},
	{"lookup_groups_reply", reply(OpLookup), &LookupReply{Match: goldenMatch, Worth: 3, Grouped: &goldenGrouped}},
	{"lookup_lengths_reply", reply(OpLookup), &LookupReply{Match: goldenMatch, Worth: 3, Grouped: &goldenLengths}},
	{"lookup_why_request", request(OpLookup), &LookupRequest{Chain: goldenRef, Shared: Shared{Why: true}}},
	{"lookup_why_reply", reply(OpLookup), &LookupReply{Match: goldenMatch, Worth: 4, Missing: &Missing{CodeEvicted, TierDisk, 3600}}},
	{"prefetch_why_reply", reply(OpPrefetch), &PrefetchReply{
		Job: 7, Match: goldenMatch, State: goldenRunning, Worth: 4, Missing: &Missing{CodeNeverStored, 0, NotKnown},
	}},
	{"prefetch_request", request(OpPrefetch), &PrefetchRequest{
		Chain: Chain{Space: 1, SaveUnfull: true, Tokens: goldenTokens.Tokens},
		Flags: PrefetchPin, Policy: PolicyTimeout, LoadMillis: 2000, LookupID: "req-42",
		Shared: Shared{Configs: Pairs(nil).Add("priority", "high")},
	}},
	{"prefetch_ranks_request", request(OpPrefetch), &PrefetchRequest{
		Chain: Chain{Space: 1, Tokens: goldenTokens.Tokens}, Flags: PrefetchShared,
		Shared: Shared{Ranks: ViewU32s([]uint32{2, 3}), PrefillRate: 20_000},
	}},
	{"prefetch_alone_request", request(OpPrefetch), &PrefetchRequest{
		Chain: Chain{Space: 1, Form: FormHashes, Width: 8, Hashes: goldenHashes(5)}, Flags: PrefetchAlone,
		Shared: Shared{Ranks: ViewU32s([]uint32{2})},
	}},
	{"prefetch_alone_reply", reply(OpPrefetch), &PrefetchReply{
		Job: 7, Match: goldenMatch, State: goldenRunning, Worth: 3, Alone: ViewU32s([]uint32{0b11_0000_0000}),
	}},
	{"prefetch_reply", reply(OpPrefetch), &PrefetchReply{Job: 7, Match: goldenMatch, State: goldenRunning, Worth: 4}},
	{"prefetch_advice_reply", reply(OpPrefetch), &PrefetchReply{
		Job: 7, Match: goldenMatch, State: goldenRunning, Advice: &Advice{Load: Count{512, 2}, Micros: 1500}, Worth: 4,
	}},
	{"prefetch_groups_request", request(OpPrefetch), &PrefetchRequest{
		Chain:  Chain{Space: 1, Tokens: goldenTokens.Tokens},
		Shared: Shared{Groups: Groups(nil).Add(Group{Space: 1}).Add(Group{2, GroupWindow, 128})},
	}},
	{"prefetch_groups_reply", reply(OpPrefetch), &PrefetchReply{
		Job: 7, Match: goldenMatch, Worth: 3, Grouped: &goldenGrouped, State: JobState{
			Code: CodeOK, Ready: Count{768, 3}, Tiers: TierCounts{{768, 3}}, Refs: goldenRefs[:3*refBytes], Needs: goldenNeeds,
		},
	}},
	{"prefetch_push", Header{Kind: KindPush, Op: OpPrefetch, ID: 7}, &JobState{
		Code: CodeOK, Ready: Count{768, 3}, Tiers: TierCounts{{256, 1}, {512, 2}},
		First: 1, Refs: goldenRefs[refBytes : 3*refBytes],
	}},
	{"revoked_push", Header{Kind: KindPush, Op: OpPrefetch, ID: 7}, &JobState{
		Code: CodeRevoked, Ready: Count{768, 3}, Tiers: TierCounts{{256, 1}, {512, 2}}, First: 3,
	}},
	{"fill_push", Header{Kind: KindPush, Op: OpReserve, ID: 8}, &CodeReply{CodeRevoked}},
	{"wait_request", request(OpWait), &WaitRequest{Job: 7, MinTokens: 768, From: FromUnsent, Deadline: Deadline{true, 500}}},
	{"wait_reply", reply(OpWait), &JobState{
		Code: CodeFailed, FailedTier: TierDisk, Ready: Count{512, 2},
		Tiers: TierCounts{{256, 1}, {256, 1}}, First: 1, Refs: goldenRefs[refBytes : 2*refBytes],
	}},
	{"cancel_request", request(OpCancel), &IDRequest{5}},
	{"cancel_reply", reply(OpCancel), &CodeReply{CodeOK}},
	{"reserve_request", request(OpReserve), &ReserveRequest{
		Chain: goldenRef, First: 1, Count: 3, Sizes: ViewU32s([]uint32{65536}),
	}},
	{"reserve_sums_request", request(OpReserve), &ReserveRequest{
		Chain: goldenRef, First: 1, Count: 3, Sizes: ViewU32s([]uint32{65536}), Flags: ReserveAllOrNothing | ReserveNoEvict,
		Deadline: Deadline{true, 2000}, Sums: Sums(nil).Add(Sum{1, 0x0102030405060708}),
	}},
	{"reserve_groups_request", request(OpReserve), &ReserveRequest{
		Chain: Chain{Space: 1, Tokens: goldenTokens.Tokens}, Count: 2, Sizes: ViewU32s([]uint32{65536, 65536, 0, 4096}),
		Groups: Groups(nil).Add(Group{Space: 1}).Add(Group{2, GroupWindow, 128}),
	}},
	{"reserve_aged_request", request(OpReserve), &ReserveRequest{
		Chain: goldenRef, Sizes: ViewU32s([]uint32{65536}), Deadline: Deadline{true, 2000}, MaxAge: 3600,
	}},
	{"reserve_reply", reply(OpReserve), &ReserveReply{Fill: 8, Code: CodeNoSpace, Slots: Slots(nil).
		Add(Slot{CodeOK, 65536, 4096}).Add(Slot{CodeExists, 0, 0})}},
	{"reserve_sums_reply", reply(OpReserve), &ReserveReply{Fill: 8, Slots: Slots(nil).
		Add(Slot{CodeOK, 65536, 4096}).Add(Slot{CodeExists, 65536, 0}).Add(Slot{CodePending, 0, 0}), Differ: ViewU32s([]uint32{1})}},
	{"commit_request", request(OpCommit), &FillRequest{Fill: 8}},
	{"commit_reply", reply(OpCommit), &StoreReply{Results(nil).
		Add(Stored{CodeOK, 0x0102030405060708}).Add(Stored{CodeNotReserved, 0})}},
	{"abort_request", request(OpAbort), &FillRequest{Fill: 8, First: 1, Count: 2}},
	{"abort_reply", reply(OpAbort), &EmptyReply{}},
	{"put_request", request(OpPut), &PutRequest{
		Chain: Chain{Space: 2, Form: FormHashes, Width: 8, Hashes: goldenHashes(2)},
		Sizes: ViewU32s([]uint32{5, 6}), PayloadBytes: 11, Payloads: []byte("helloKVS..."),
	}},
	{"put_aged_request", request(OpPut), &PutRequest{
		Chain: Chain{Space: 2, Form: FormHashes, Width: 8, Hashes: goldenHashes(2)},
		Sizes: ViewU32s([]uint32{5}), PayloadBytes: 5, MaxAge: 60, Payloads: []byte("hello"),
	}},
	{"put_reply", reply(OpPut), &StoreReply{Results(nil).
		Add(Stored{CodeExists, helloSum}).Add(Stored{CodeOverBudget, 0})}},
	{"get_request", request(OpGet), &GetRequest{Chain: goldenRef, MaxChunks: 4, MaxBytes: 1 << 20, Deadline: Deadline{true, 100}}},
	{"get_reply", reply(OpGet), &GetReply{Chunks(nil).Add(Chunk{5, 256, helloSum}), []byte("hello")}},
	{"release_request", request(OpRelease), &IDRequest{7}},
	{"release_reply", reply(OpRelease), &ReleaseReply{CodeOK, JobState{
		Code: CodeCancelled, Ready: Count{256, 1}, Tiers: TierCounts{{256, 1}}, First: 1,
	}}},
	{"renew_request", request(OpRenew), &IDRequest{7}},
	{"renew_reply", reply(OpRenew), &RenewReply{300_000}},
	{"pin_request", request(OpPin), &PinRequest{Chain: goldenTokens, LookupID: "req-42", MaxAgeMillis: 60_000}},
	{"pin_reply", reply(OpPin), &PinReply{Count{768, 3}}},
	{"pin_end_request", request(OpPin), &PinRequest{Chain: Chain{Form: FormNone}, LookupID: "req-42"}},
	{"pin_end_reply", reply(OpPin), &PinReply{Count{Chunks: 3}}},
	{"delete_request", request(OpDelete), &DeleteRequest{Chain: goldenTokens}},
	{"delete_space_request", request(OpDelete), &DeleteRequest{Chain: Chain{Space: 1, Form: FormNone}, Deadline: Deadline{true, 5000}}},
	{"delete_reply", reply(OpDelete), &DeleteReply{2}},
	{"flush_request", request(OpFlush), &FlushRequest{Durable: true, Deadline: Deadline{true, 10_000}}},
	{"flush_reply", reply(OpFlush), &FlushReply{40, 40 * 65536, []Leftover{{1, 65536, "tier_off"}}}},
	{"stats_request", request(OpStats), &EmptyRequest{}},
	{"stats_reply", reply(OpStats), &StatsReply{[]byte(`{"uptime_seconds":1}`)}},
	{"ping_request", request(OpPing), &EmptyRequest{}},
	{"ping_reply", reply(OpPing), &EmptyReply{}},
	{"events_request", request(OpEvents), &EventsRequest{Epoch: 0x1122334455667788, From: 41, Snapshot: true}},
	{"events_now_request", request(OpEvents), &EventsRequest{From: EventsNow, Deadline: Deadline{true, 500}}},
	{"events_reply", reply(OpEvents), &EventsReply{Next: 43}},
	{"events_push", push(OpEvents), &EventsPush{
		Epoch: 0x1122334455667788, Seq: 41, Micros: 1_700_000_000_000_000,
		Spaces: []EventSpace{{ID: goldenInfo(0).ID, Space: goldenSpace.WithoutSalt()}},
		Events: Events(nil).
			Add(Event{Tier: TierCPU, Tokens: 256, Space: goldenInfo(0).ID, Hash: key.Hash(sequence(1, 17)), Parent: key.Hash(sequence(17, 33))}).
			Add(Event{Kind: EventRemoved, Tier: TierDisk, Space: goldenInfo(0).ID, Hash: key.Hash(sequence(17, 33))}).
			Add(Event{Kind: EventCleared}),
	}},
	{"events_lost_push", push(OpEvents), &EventsPush{Epoch: 0x1122334455667788, Seq: 90, Micros: 1_700_000_000_000_000, Flags: EventsLost}},
	{"warm_request", request(OpWarm), &WarmRequest{Chain: goldenTokens, Search: TierDisk, Deadline: Deadline{true, 500}}},
	{"warm_named_request", request(OpWarm), &WarmRequest{Chain: Chain{Form: FormNone}, LookupID: "req-42"}},
	{"warm_reply", reply(OpWarm), &WarmReply{Match: goldenMatch, State: JobState{
		Ready: Count{768, 3}, Tiers: TierCounts{{256, 1}, {512, 2}},
	}}},
	{"batch_request", request(OpBatch), &BatchRequest{
		Policy: PolicyTimeout, LoadMillis: 2000, MaxOvertaken: 16, Prompts: []BatchPrompt{
			{Chain: goldenTokens, LookupID: "req-42"}, {Chain: goldenRef, Overtaken: 3},
		}, Shared: Shared{PrefillRate: 20_000, Configs: Pairs(nil).Add("priority", "high")},
	}},
	{"batch_reply", reply(OpBatch), &BatchReply{Jobs: []BatchJob{
		{Prefetch: PrefetchReply{
			Job: 7, Match: goldenMatch, State: goldenRunning, Advice: &Advice{Load: Count{512, 2}, Micros: 1500}, Worth: 4,
		}},
		{Code: CodeUnknownJob, Text: "no such job"},
	}, Order: ViewU32s([]uint32{1, 0})}},
	{"prefetch_hints_reply", reply(OpPrefetch), &PrefetchReply{
		Job: 7, Match: goldenMatch, State: goldenRunning, Advice: &Advice{Load: Count{512, 2}, Micros: 1500}, Worth: 4,
		Faults: goldenFaults,
	}},
	{"hint_request", request(OpHint), &HintRequest{
		Chain: Chain{Form: FormKept, ID: 3}, Ranks: ViewU32s([]uint32{2}),
		Configs: Pairs(nil).Add("session", "s-1").Add("pause_seconds", "20"),
	}},
	{"hint_named_request", request(OpHint), &HintRequest{
		Chain: Chain{Form: FormNone}, LookupID: "req-42", Configs: Pairs(nil).Add("turn_over", "done"),
	}},
	{"hint_reply", reply(OpHint), &HintReply{Retained: Count{768, 3}, Faults: goldenFaults}},
	{"error_reply", Header{Kind: KindReply, Op: OpRelease, Code: CodeUnknownJob, ID: 21}, &ErrorReply{
		Text: "job 9 is not live: it was released, cancelled or never made on this connection",
	}},
	{"error_limit_reply", Header{Kind: KindReply, Op: OpReserve, Code: CodeTooLarge, ID: 22}, &ErrorReply{
		Text: "chunk 0 has 134217728 bytes", Limit: MaxPayloadBytes,
	}},
	{"error_later_reply", Header{Kind: KindReply, Op: OpReserve, Code: CodeNoSpace, ID: 23}, &ErrorReply{
		Retry: RetryLater, AfterMillis: 100, Text: "no room",
	}},
}

var goldenFaults = []Fault{
	{CodeTooLarge, 1, "turn-17", "directive 0 ends at 4096 of a prompt of 1000 tokens"},
	{CodeBadRequest, NoAction, "pause_seconds", "\"soon\" is no number"},
}

var goldenRunning = JobState{Code: CodeRunning, Ready: Count{256, 1}, Tiers: TierCounts{{256, 1}}, Refs: goldenRefs[:refBytes]}

func request(op Op) Header { return Header{Kind: KindRequest, Op: op, ID: uint64(op)} }
func push(op Op) Header    { return Header{Kind: KindPush, Op: op, ID: uint64(op)} }
func reply(op Op) Header   { return Header{Kind: KindReply, Op: op, ID: uint64(op)} }

// handmade are golden frames that no codec here writes.
var handmade = []string{"ping_option_request", "newer_lookup_reply", "newer_wait_reply", "version_reply", "version_1_request", "version_1_python_request", "version_1_reply"}

// goldenText is a golden frame as its file has it.
func goldenText(t *testing.T, s *schema, h Header, m Message) string {
	t.Helper()
	text, err := s.annotate(End(m.Append(Begin(nil, h)), 0))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestGoldenFrames: the codec, the schema and the files agree about each.
func TestGoldenFrames(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range handmade {
		seen[name] = true
	}
	s := readSchema(t)
	for _, g := range golden {
		seen[g.name] = true
		t.Run(g.name, func(t *testing.T) {
			text, path := goldenText(t, s, g.h, g.m), filepath.Join(goldenDir, g.name+".hex")
			if *update {
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if file, err := os.ReadFile(path); err != nil || string(file) != text {
				t.Fatalf("the file differs from\n%s%v", text, err)
			}
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
			if again := End(got.Append(Begin(nil, h)), 0); !bytes.Equal(again, frame) {
				t.Errorf("encoded\n%x, want\n%x", again, frame)
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
