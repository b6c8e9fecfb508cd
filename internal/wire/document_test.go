package wire

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/key"
)

// TestTenMinutes: the first frames that docs/protocol.md names are what this package
// makes of them.
func TestTenMinutes(t *testing.T) {
	text, err := os.ReadFile("../../docs/ten_minutes.hex")
	if err != nil {
		t.Fatal(err)
	}
	got := parseHex(t, string(text))
	chain := Chain{Form: FormHashes, Width: 8, Hashes: bytes.Repeat([]byte{1}, 8)}
	want := AppendRequest(nil, OpHello, 1, &HelloRequest{MinVersion: 2, MaxVersion: 2, Name: "demo", HasSpace: true, Space: key.Space{
		Model: "demo", World: 1, DType: "bf16", ChunkTokens: 4, Method: key.Given,
	}})
	want = AppendRequest(want, OpPut, 2, &PutRequest{Chain: chain, Sizes: ViewU32s([]uint32{5}), Payloads: []byte("hello")})
	want = AppendRequest(want, OpGet, 3, &GetRequest{Chain: chain})
	want = AppendReply(want, OpPut, 2, &StoreReply{Results(nil).Add(Stored{CodeOK, helloSum})})
	want = AppendReply(want, OpGet, 3, &GetReply{Chunks(nil).Add(Chunk{5, 4, helloSum}), []byte("hello")})
	if !bytes.Equal(got, want) {
		t.Errorf("ten_minutes.hex has\n%x, want\n%x", got, want)
	}
}

// TestRetired: nothing has the number of what has left the protocol.
func TestRetired(t *testing.T) {
	s := readSchema(t)
	for name, o := range s.Operations {
		if slices.Contains(s.Retired.Operations, o.Op) {
			t.Errorf("operation %s has a number that is retired", name)
		}
	}
	for enum, gone := range s.Retired.Enums {
		for name, n := range s.Enums[enum] {
			if slices.Contains(gone, n) {
				t.Errorf("%s %s has a number that is retired", enum, name)
			}
		}
	}
	for list, gone := range s.Retired.Options {
		for name, o := range s.Options[list] {
			if slices.Contains(gone, o[0].(float64)) {
				t.Errorf("option %s of %s has a tag that is retired", name, list)
			}
		}
	}
}

// TestSchemaNumbers: the numbers of the schema are those of this package.
func TestSchemaNumbers(t *testing.T) {
	s := readSchema(t)
	if s.Version != Version || s.Magic != Magic || s.Critical != optionCritical {
		t.Errorf("version %d, magic %q, critical %#x", s.Version, s.Magic, s.Critical)
	}
	if len(s.Codes) != len(codeNames) {
		t.Errorf("%d codes, want %d", len(s.Codes), len(codeNames))
	}
	for _, c := range s.Codes {
		code := Code(c[0].(float64))
		if code.String() != c[1] || code.retry().String() != c[2] {
			t.Errorf("%v, want %s, %s", c, code, code.retry())
		}
	}
	for op, name := range opNames {
		o, ok := s.Operations[name]
		if name == "" {
			continue
		}
		if !ok || o.Op != uint8(op) {
			t.Errorf("%s is %d, want %d", name, o.Op, op)
		}
	}
	for name, want := range map[string]uint64{
		"header_bytes": HeaderBytes, "hello_bytes": MaxHelloBytes, "request_bytes": MaxBodyBytes, "reply_bytes": MaxBodyBytes,
		"least_bytes": LeastBodyBytes, "payload_bytes": MaxPayloadBytes, "str_bytes": MaxStrBytes, "tags": key.MaxTags,
		"chain_chunks": key.MaxChunks, "sums": MaxSums, "ranks": MaxRanks, "groups": MaxGroups, "lengths": MaxLengths, "batch": MaxBatch,
		"descriptors": MaxFiles, "chunk_tokens": key.MaxChunkTokens, "faults": MaxFaults,
	} {
		if s.Limits[name] != want {
			t.Errorf("limit %s is %d, want %d", name, s.Limits[name], want)
		}
	}
	for enum, names := range map[string][]string{
		"put_modes": putNames[:], "forms": formNames[:], "policies": policyNames[:], "retry": retryNames[:],
	} {
		for i, name := range names {
			if s.Enums[enum][name] != uint32(i) || len(s.Enums[enum]) != len(names) {
				t.Errorf("%s %s is %d of %d, want %d", enum, name, s.Enums[enum][name], len(s.Enums[enum]), i)
			}
		}
	}
}
