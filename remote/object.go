package remote

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// layout is the part of every name that says how to read what lies below.
const layout = "v1/"

// The record as object metadata; S3 prefixes each name with x-amz-meta-.
const (
	metaSpace  = "kvstored-space"  // hex
	metaHash   = "kvstored-hash"   // hex
	metaParent = "kvstored-parent" // hex; zeros for the first chunk of a prompt
	metaDepth  = "kvstored-depth"  // decimal, like the rest
	metaTokens = "kvstored-tokens"
	metaSize   = "kvstored-size"
	metaSum    = "kvstored-xxh3" // hex, 16 digits
	metaBorn   = "kvstored-born" // Unix seconds, of a chunk with a bound on its age
	metaDies   = "kvstored-dies" // so too
)

// names makes and reads the names of objects below a prefix.
type names struct{ root string } // <prefix>/v1/

func (n names) object(k key.Key) string {
	h := hex.EncodeToString(k.Hash[:])
	return n.space(k.Space) + h[:2] + "/" + h
}

// space is what the names of all objects of a space start with.
func (n names) space(id key.SpaceID) string { return n.root + hex.EncodeToString(id[:]) + "/" }

// key reads a name; false for the name of no chunk.
func (n names) key(name string) (k key.Key, ok bool) {
	rest, ok := strings.CutPrefix(name, n.root)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 || len(parts[1]) != 2 || !strings.HasPrefix(parts[2], parts[1]) {
		return k, false
	}
	return k, unhex(k.Space[:], parts[0]) && unhex(k.Hash[:], parts[2])
}

// unhex fills dst from exactly as many digits.
func unhex(dst []byte, s string) bool {
	if len(s) != hex.EncodedLen(len(dst)) {
		return false
	}
	_, err := hex.Decode(dst, []byte(s))
	return err == nil
}

// metadata is the record of an object, and its expiry where it has one.
func metadata(r *tier.Record, s stale.Expiry) map[string]string {
	decimal := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
	m := map[string]string{
		metaSpace:  hex.EncodeToString(r.Key.Space[:]),
		metaHash:   hex.EncodeToString(r.Key.Hash[:]),
		metaParent: hex.EncodeToString(r.Parent[:]),
		metaDepth:  decimal(r.Depth),
		metaTokens: decimal(r.Tokens),
		metaSize:   decimal(r.Size),
		metaSum:    fmt.Sprintf("%016x", r.Sum),
	}
	if s.HasTTL() {
		m[metaBorn], m[metaDies] = decimal(s.Stored), decimal(s.Expires)
	}
	return m
}

// errForeign is an object that kvstored did not write, or not under this name.
var errForeign = errors.New("not a chunk of kvstored's")

// parseMetadata reads a record and an expiry back. Stores may change the case of names.
func parseMetadata(meta map[string]string) (r tier.Record, s stale.Expiry, err error) {
	m := make(map[string]string, len(meta))
	for name, v := range meta {
		m[strings.ToLower(name)] = v
	}
	if s, err = parseExpiry(m); err != nil {
		return r, s, err
	}
	for name, dst := range map[string][]byte{metaSpace: r.Key.Space[:], metaHash: r.Key.Hash[:], metaParent: r.Parent[:]} {
		if !unhex(dst, m[name]) {
			return r, s, fmt.Errorf("metadata %s: %w", name, errForeign)
		}
	}
	for name, dst := range map[string]*uint32{metaDepth: &r.Depth, metaTokens: &r.Tokens, metaSize: &r.Size} {
		n, err := strconv.ParseUint(m[name], 10, 32)
		if err != nil {
			return r, s, fmt.Errorf("metadata %s: %w", name, errForeign)
		}
		*dst = uint32(n)
	}
	if r.Sum, err = strconv.ParseUint(m[metaSum], 16, 64); err != nil || len(m[metaSum]) != 16 {
		return r, s, fmt.Errorf("metadata %s: %w", metaSum, errForeign)
	}
	if r.Size == 0 || r.Size > arena.MaxPayload {
		return r, s, fmt.Errorf("a payload of %d bytes: %w", r.Size, errForeign)
	}
	return r, s, nil
}

// parseExpiry reads the expiry of an object; one that is half there, or no expiry, is an
// error, for nothing says then until when the object may be used.
func parseExpiry(m map[string]string) (s stale.Expiry, err error) {
	born, isBorn := m[metaBorn]
	dies, has := m[metaDies]
	if !has && !isBorn {
		return s, nil
	}
	for _, n := range []struct {
		text string
		to   *uint32
	}{{born, &s.Stored}, {dies, &s.Expires}} {
		v, err := strconv.ParseUint(n.text, 10, 32)
		if err != nil || v == 0 {
			return s, fmt.Errorf("metadata %s %.20q, %s %.20q: %w", metaBorn, born, metaDies, dies, errForeign)
		}
		*n.to = uint32(v)
	}
	return s, nil
}
