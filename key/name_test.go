package key_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/key"
)

const hash1 = "000102030405060708090a0b0c0d0e0f"

func TestParseRoundTrip(t *testing.T) {
	want := key.Space{
		Model: "a@b%c~d e\n\x7fü", Revision: "r", LoRA: "~7E", World: 2, Worker: 1, DType: "@",
		ChunkTokens: 256, Method: "given:x y", Group: "%", SaltDigest: key.Hash{15: 1},
		Tags: []key.Tag{{Name: " ", Value: ""}, {Name: "%@", Value: "kv.salt"}},
	}
	name, err := key.Format(want, key.Hash{7})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []byte(name) {
		if c <= ' ' || c > '~' {
			t.Errorf("name %q is not printable ASCII", name)
		}
	}
	got, h, err := key.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) || h != (key.Hash{7}) {
		t.Errorf("Parse(%q) = %+v, %x\nwant %+v", name, got, h, want)
	}
}

func TestParseRefuses(t *testing.T) {
	const tags = "@kv.chunk%256@kv.method%sha256"
	for name, want := range map[string]string{
		"":                                       "model@world@worker@hash@dtype",
		"m@1@0@" + hash1:                         "model@world@worker@hash@dtype",
		"m@x@0@" + hash1 + "@d":                  "write a decimal number",
		"m@1@4294967296@" + hash1:                "model@world@worker@hash@dtype",
		"m@1@-@" + hash1 + "@d":                  "write a decimal number",
		"m@1@0@00@d":                             "write 32",
		"m@1@0@" + hash1[:31] + "x@d":            "hexadecimal",
		"m@1@0@" + strings.ToUpper(hash1) + "@d": "lower-case",
		"m@1@0@" + strings.Repeat("0", 32) + "@d" + tags:      "root",
		"m@1@0@" + hash1 + "@d":                               "chunk tokens is 0",
		"m@1@0@" + hash1 + "@d@kv.chunk%256":                  "hash method",
		"m@1@0@" + hash1 + "@d@a":                             "write tag%value",
		"m@1@0@" + hash1 + "@d~" + tags:                       "two hexadecimal digits",
		"m@1@0@" + hash1 + "@d~4" + tags:                      "two hexadecimal digits",
		"m@1@0@" + hash1 + "@d~GG" + tags:                     "two hexadecimal digits",
		"m@1@0@" + hash1 + "@d~FF" + tags:                     "UTF-8",
		"m@1@0@" + hash1 + "@d~41" + tags:                     "another spelling",
		"m@1@0@" + hash1 + "@d~2f" + tags:                     "another spelling",
		"m n@1@0@" + hash1 + "@d" + tags:                      "another spelling",
		"m@01@0@" + hash1 + "@d" + tags:                       "another spelling",
		"m@1@+0@" + hash1 + "@d" + tags:                       "another spelling",
		"m@1@0@" + hash1 + "@d@kv.method%sha256@kv.chunk%256": "another spelling",
		"m@1@0@" + hash1 + "@d@kv.chunk%1" + tags:             "another spelling",
		"m@1@0@" + hash1 + "@d@a%b" + tags:                    "another spelling",
		"m@1@0@" + hash1 + "@d" + tags + "@a%b%c":             "another spelling",
		"m@1@0@" + hash1 + "@d" + tags + "@kv.rev%":           "another spelling",
		"m@1@0@" + hash1 + "@d" + tags + "@kv.salt%1234":      "write 32",
		"m@1@0@" + hash1 + "@d" + tags + "@kv.other%1":        "reserved",
		"m@1@0@" + hash1 + "@d" + tags + "@b%1@a%1":           "sort tags",
		"m@1@1@" + hash1 + "@d" + tags:                        "rank from 0 to 0",
	} {
		_, _, err := key.Parse(name)
		if !errors.Is(err, key.ErrName) || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q): error %v, want one with %q", name, err, want)
		}
	}
}

func TestFormatRefuses(t *testing.T) {
	if _, err := key.Format(key.Space{}, key.Hash{1}); !errors.Is(err, key.ErrSpace) {
		t.Errorf("invalid space: error %v", err)
	}
	if _, err := key.Format(space(key.SHA256, 4), key.Hash{}); !errors.Is(err, key.ErrName) {
		t.Errorf("zero hash: error %v", err)
	}
}

// FuzzParse: whatever Parse accepts is the one name of its chunk.
func FuzzParse(f *testing.F) {
	v := readVectors(f)
	for _, s := range v.Spaces {
		f.Add(s.Names[0])
	}
	f.Add(v.Given[0].Names[0])
	f.Add("m@1@0@" + hash1 + "@d~@kv.chunk%256@kv.method%sha256@kv.salt%" + hash1)
	f.Fuzz(func(t *testing.T, name string) {
		s, h, err := key.Parse(name)
		if err != nil {
			if !errors.Is(err, key.ErrName) {
				t.Fatalf("error %v is no ErrName", err)
			}
			return
		}
		again, err := key.Format(s, h)
		if err != nil || again != name {
			t.Fatalf("Format(Parse(%q)) = %q, %v", name, again, err)
		}
		id(t, s)
	})
}
