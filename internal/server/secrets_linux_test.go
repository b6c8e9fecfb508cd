package server_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

const (
	secretChunks   = 512
	secretsInChunk = 16
	allSecrets     = secretChunks * secretsInChunk // 8,192
)

// secretMark begins each secret; what follows it tells them apart.
var secretMark = []byte("\xf5\xf6secret\xf7")

// secretBytes is one secret.
func secretBytes(n int) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "secret %d", n))
	return append(bytes.Clone(secretMark), sum[:]...)
}

// secrets is what bob has stored, and what of it was found.
type secrets struct {
	byBytes map[string]int
	sums    map[uint64]int // checksums of whole payloads, which tell about them too
	found   map[int]bool
	leaked  map[int]bool // by a checksum
}

func newSecrets() *secrets {
	return &secrets{byBytes: map[string]int{}, sums: map[uint64]int{}, found: map[int]bool{}, leaked: map[int]bool{}}
}

// payload is chunk i of bob's prompt, in which secrets lie.
func (s *secrets) payload(i int) []byte {
	p := make([]byte, size)
	for k := range secretsInChunk {
		n := i*secretsInChunk + k
		secret := secretBytes(n)
		s.byBytes[string(secret)] = n
		copy(p[k*size/secretsInChunk:], secret)
	}
	s.sums[xxh3.Hash(p)] = i
	return p
}

// scan looks for secrets in bytes that a client came by.
func (s *secrets) scan(b []byte) {
	for {
		at := bytes.Index(b, secretMark)
		if at < 0 {
			return
		}
		b = b[at:]
		if n := len(secretMark) + sha256.Size; len(b) >= n {
			if i, ok := s.byBytes[string(b[:n])]; ok {
				s.found[i] = true
			}
		}
		b = b[1:]
	}
}

// scanReply is scan for a reply, in which there could be checksums too.
func (s *secrets) scanReply(b []byte) {
	s.scan(b)
	for i := 0; i+8 <= len(b) && i < 64<<10; i++ {
		if n, ok := s.sums[binary.LittleEndian.Uint64(b[i:])]; ok {
			s.leaked[n] = true
		}
	}
}

func (s *secrets) String() string {
	return fmt.Sprintf("%d of %d secrets and %d of %d checksums found", len(s.found), allSecrets, len(s.leaked), secretChunks)
}

// attacker is a client that knows bob's keys, asks for everything there is, and
// looks at each byte that it gets, in memory or over the socket.
type attacker struct {
	r     *rig
	s     *secrets
	conn  *wire.Conn
	hello wire.HelloReply
	maps  [][]byte
	id    uint64
}

// attack connects as a user; nil if it is not let in.
func (r *rig) attack(uid uint32, s *secrets) *attacker {
	r.t.Helper()
	nc, err := r.local.DialAs(r.t.Context(), uid)
	r.must(err)
	a := &attacker{r: r, s: s}
	a.conn, err = wire.NewConn(nc)
	r.must(err)
	_, err = a.conn.Write(wire.AppendRequest(nil, wire.OpHello, 0, &wire.HelloRequest{
		MinVersion: wire.Version, MaxVersion: wire.Version, StagingBytes: 256 << 10,
		Wants: wire.FeatureArena | wire.FeatureStaging,
	}))
	r.must(err)
	h, body, files, err := a.conn.ReadFrameFiles()
	r.must(err)
	s.scanReply(body)
	a.mapAll(files)
	a.conn.SetMaxBody(wire.MaxBodyBytes)
	if h.Code != wire.CodeOK {
		if h.Code != wire.CodeDenied || len(files) > 0 {
			r.t.Errorf("user %d is answered %s with %d descriptors", uid, h.Code, len(files))
		}
		a.close()
		return nil
	}
	r.must(a.hello.Decode(body))
	return a
}

// mapAll maps all of each descriptor, however long it was announced, and wants no
// descriptor to be more than it says.
func (a *attacker) mapAll(files []*os.File) {
	for _, f := range files {
		st, err := f.Stat()
		a.r.must(err)
		b, err := syscall.Mmap(int(f.Fd()), 0, int(st.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
		a.r.must(err)
		a.maps = append(a.maps, b)
		f.Close()
	}
}

// look scans all that is mapped.
func (a *attacker) look() {
	for _, b := range a.maps {
		a.s.scan(b)
	}
}

func (a *attacker) close() {
	a.look()
	for _, b := range a.maps {
		_ = syscall.Munmap(b)
	}
	_ = a.conn.Close()
}

// ask sends a request and scans the reply.
func (a *attacker) ask(op wire.Op, m wire.Message) (wire.Code, []byte) {
	a.id++
	_, err := a.conn.Write(wire.AppendRequest(nil, op, a.id, m))
	a.r.must(err)
	h, body, err := a.conn.ReadFrame()
	a.r.must(err)
	if h.ID != a.id {
		a.r.t.Fatalf("%s is answered as request %d", op, h.ID)
	}
	a.s.scanReply(body)
	return h.Code, body
}

// everything asks for bob's chunks in each way there is, in bob's space and, by the
// same hashes, in one of its own.
func (a *attacker) everything(theirs *key.Chain, models ...string) {
	for _, model := range models {
		status, body := a.ask(wire.OpOpenSpace, &wire.OpenSpaceRequest{Space: modelSpace(model)})
		handle := uint32(0)
		if status == wire.CodeOK {
			var m wire.OpenSpaceReply
			a.r.must(m.Decode(body))
			handle = m.Space.Handle
		}
		ch := wire.Chain{Space: handle, Form: wire.FormHashes, Width: 16}
		for i := range theirs.Hashes {
			ch.Hashes = append(ch.Hashes, theirs.Hashes[i][:]...)
		}
		a.ask(wire.OpLookup, &wire.LookupRequest{Chain: ch})
		status, body = a.ask(wire.OpPrefetch, &wire.PrefetchRequest{Chain: ch, LookupID: "x", Flags: wire.PrefetchPin})
		if status == wire.CodeOK {
			var m wire.PrefetchReply
			a.r.must(m.Decode(body))
			a.ask(wire.OpGet, &wire.GetRequest{Chain: wire.Chain{Form: wire.FormRef, ID: m.Job}})
			a.ask(wire.OpRelease, &wire.IDRequest{ID: m.Job})
		}
		a.ask(wire.OpBatch, &wire.BatchRequest{Prompts: []wire.BatchPrompt{{Chain: ch}}})
		a.ask(wire.OpGet, &wire.GetRequest{Chain: ch})
		a.ask(wire.OpPin, &wire.PinRequest{Chain: ch, LookupID: "x"})
		a.ask(wire.OpWarm, &wire.WarmRequest{Chain: ch})
		a.ask(wire.OpWarm, &wire.WarmRequest{Chain: wire.Chain{Form: wire.FormNone}, LookupID: "x"})
		sums := wire.Sums(nil).Add(wire.Sum{Slot: 0, Sum: 1})
		status, body = a.ask(wire.OpReserve, &wire.ReserveRequest{Chain: ch, Sizes: wire.ViewU32s([]uint32{size}), Sums: sums})
		if status == wire.CodeOK {
			var m wire.ReserveReply
			a.r.must(m.Decode(body))
			a.look()
			if m.Fill > 0 {
				a.ask(wire.OpGet, &wire.GetRequest{Chain: wire.Chain{Form: wire.FormRef, ID: m.Fill}})
				a.ask(wire.OpAbort, &wire.FillRequest{Fill: m.Fill})
			}
		}
		one := wire.Chain{Space: handle, Form: wire.FormHashes, Width: 16, Hashes: theirs.Hashes[0][:]}
		a.ask(wire.OpPut, &wire.PutRequest{Chain: one, Sizes: wire.ViewU32s([]uint32{3}), Payloads: []byte("bad")})
		a.ask(wire.OpPin, &wire.PinRequest{Chain: wire.Chain{Form: wire.FormNone}, LookupID: "x"})
	}
	a.ask(wire.OpStats, wire.EmptyRequest{})
}

// plant has bob store all secrets.
func (r *rig) plant(s *secrets, prompt *key.Chain, model string) {
	r.t.Helper()
	sp := modelSpace(model)
	c, err := r.dialAs(bob, client.Options{Space: &sp, Inline: true})
	r.must(err)
	var payloads [][]byte
	for i := range secretChunks {
		payloads = append(payloads, s.payload(i))
	}
	stored, err := c.Put(r.t.Context(), client.Chain(prompt), 0, payloads)
	r.must(err)
	for i, st := range stored {
		if st.Code != client.ResultStored {
			r.t.Fatalf("chunk %d: %s", i, st.Code)
		}
	}
	r.must(c.Close())
}

// generated is rules for alice and bob, of which many are refused.
func generated(random *rand.Rand) string {
	patterns := []string{"*", "*", "a/*", "b/*", "b/1", "?/1", "?*", "*/1", "c"}
	rights := []string{"read", "write", "read, write", "none", "admin", "read, write, admin", "write, admin"}
	var lines []string
	for range 1 + random.IntN(3) {
		lines = append(lines, fmt.Sprintf("{uids: [%d], match: '%s', rights: [%s], map: %t}",
			alice, patterns[random.IntN(len(patterns))], rights[random.IntN(len(rights))], random.IntN(2) == 0))
	}
	lines = append(lines, fmt.Sprintf("{uids: [%d], match: 'b/*', rights: [read, write]}", bob))
	random.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	return "[" + strings.Join(lines, ", ") + "]"
}

// TestSecrets: under any rules that are accepted, a client whose user may not read
// the chunks of another finds nothing of them: 0 of 8,192 secrets in the memory it
// was given and in all replies, and not one checksum. One that may read everything
// finds all, so that the search is one.
func TestSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 32 * mib, lone: true, Options: server.Options{
			Settings: server.Settings{Access: accepted(t, allButMap)}, Stats: func(wire.Rights) ([]byte, error) { return []byte("{}"), nil },
		}})
		prompt := chainIn(modelSpace("b/1"), 7, secretChunks+1) // the last one is not stored: it can be reserved
		s := newSecrets()
		r.plant(s, prompt, "b/1")
		if len(s.byBytes) != allSecrets {
			t.Fatalf("%d secrets were planted", len(s.byBytes))
		}

		random := rand.New(rand.NewPCG(8192, 1))
		blind, mapping, refused, forced := 0, 0, 0, 0
		for range 400 {
			text := generated(random)
			cfg, ok := rules(t, text)
			read, _, _ := naiveRights(&cfg, alice, "b/1")
			if !ok {
				refused++
				if cfg, ok = unchecked(text); !ok || forced >= 40 {
					continue
				}
				read, _, _ = naiveRights(&cfg, alice, "b/1")
				if forced++; read {
					continue
				}
			}
			if read {
				continue
			}
			r.setAccess(cfg.Policy(0))
			if blind++; r.mapsArena(alice, s, prompt) {
				mapping++
			}
			if len(s.found)+len(s.leaked) > 0 {
				t.Fatalf("%s: %s", text, s)
			}
		}
		if blind < 60 || refused < 100 || forced < 40 || mapping > 0 {
			t.Errorf("of the rules %d let nothing be read, of them %d with a mapping; %d were refused, and %d kept nevertheless", blind, mapping, refused, forced)
		}

		r.setAccess(accepted(t, fmt.Sprintf("[{uids: [%d], match: '*', rights: [read], map: true}]", alice)))
		if !r.mapsArena(alice, s, prompt) || len(s.found) != allSecrets || len(s.leaked) != secretChunks {
			t.Errorf("a client that may read everything: %s", s)
		}
	})
}

// unchecked is rules that were refused, as far as they could be read: what the
// server does with them does not hang on the check.
func unchecked(text string) (c config.Config, ok bool) {
	for _, rule := range strings.Split(strings.Trim(text, "[]"), "}, {") {
		var uid uint32
		var match, words string
		rule = strings.NewReplacer("{", "", "}", "", "'", "", "[", "", "]", "").Replace(rule)
		head, maps, _ := strings.Cut(rule, ", map: ")
		head, words, _ = strings.Cut(head, ", rights: ")
		if n, err := fmt.Sscanf(strings.Replace(head, ",", " ", 1), "uids: %d match: %s", &uid, &match); n != 2 || err != nil {
			return c, false
		}
		c.Access = append(c.Access, config.Access{UIDs: []uint32{uid}, Match: match, Rights: strings.Split(words, ", "), Map: maps == "true"})
	}
	return c, true
}

// mapsArena has a user try everything, and reports whether it got the arena.
func (r *rig) mapsArena(uid uint32, s *secrets, prompt *key.Chain) bool {
	r.t.Helper()
	a := r.attack(uid, s)
	if a == nil {
		return false
	}
	defer a.close()
	a.everything(prompt, "b/1", "a/1")
	return a.hello.Granted&wire.FeatureArena != 0
}

// TestSecretsInUsedMemory: memory that was bob's, in the arena or as a staging
// window, tells alice nothing when it is hers.
func TestSecretsInUsedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 16 * mib, lone: true, Options: server.Options{Settings: server.Settings{
			Access: accepted(t, "[{uids: [12001], match: 'a/*', rights: [read, write]}, {uids: [12002], match: 'b/*', rights: [read, write]}]"),
		}}})
		ctx, s := t.Context(), newSecrets()
		prompt := chainIn(modelSpace("b/1"), 7, secretChunks)
		bobs, alices := modelSpace("b/1"), modelSpace("a/1")
		for range 3 {
			b, err := r.dialAs(bob, client.Options{Space: &bobs, StagingBytes: 16 * mib})
			r.must(err)
			f, err := b.Reserve(ctx, client.Chain(prompt), client.ReserveOptions{Size: size})
			r.must(err)
			for i := range f.Len() {
				copy(f.Bytes(i), s.payload(i))
			}
			_, err = f.Commit(ctx)
			r.must(err)
			n, err := b.DeletePrompt(ctx, client.Chain(prompt))
			if r.must(err); n < secretChunks/4 {
				t.Fatalf("%d chunks of bob were there", n)
			}
			r.must(b.Close())

			a := r.attack(alice, s)
			if a == nil || len(a.maps) != 1 || !bytes.Equal(a.maps[0], make([]byte, len(a.maps[0]))) {
				t.Fatalf("alice's window is not new")
			}
			a.everything(prompt, "a/1", "b/1")
			a.close()
			c, err := r.dialAs(alice, client.Options{Space: &alices})
			r.must(err)
			for i, n := range []int{1, 3, 100, 4095, 4097, size - 1} { // none fills its block
				own := chainIn(alices, uint64(100+i), 40)
				payloads := make([][]byte, 40)
				for k := range payloads {
					payloads[k] = bytes.Repeat([]byte{byte(k)}, n)
				}
				_, err = c.Put(ctx, client.Chain(own), 0, payloads)
				r.must(err)
				got, err := c.Get(ctx, client.Chain(own), client.GetOptions{})
				r.must(err)
				if len(got) != len(payloads) {
					t.Fatalf("%d of %d chunks are there", len(got), len(payloads))
				}
				for k := range got {
					s.scan(got[k].Bytes)
					if !bytes.Equal(got[k].Bytes, payloads[k]) {
						t.Errorf("chunk %d of %d bytes comes back otherwise", k, n)
					}
				}
				_, err = c.DeletePrompt(ctx, client.Chain(own))
				r.must(err)
			}
			r.must(c.Close())
		}
		if len(s.found)+len(s.leaked) > 0 {
			t.Error(s)
		}
	})
}

// A mapping that a client has not, it does not get by a second hello either.
func TestSecondHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{Options: server.Options{Settings: server.Settings{Access: access.New(access.Options{
			Rules: []access.Rule{{UIDs: []uint32{alice}, Match: "*", Rights: access.Read}},
		})}}})
		a := r.attack(alice, newSecrets())
		defer a.close()
		status, _ := a.ask(wire.OpHello, &wire.HelloRequest{MinVersion: wire.Version, MaxVersion: wire.Version, Wants: wire.FeatureArena})
		if status != wire.CodeBadRequest || len(a.maps) != 0 {
			t.Errorf("it is answered %s, and has %d mappings", status, len(a.maps))
		}
		if _, _, err := a.conn.ReadFrame(); !errors.Is(err, net.ErrClosed) && err == nil {
			t.Error("the connection stays")
		}
	})
}
