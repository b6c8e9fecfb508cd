package server_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// The users of these tests. The last has no rule of its own.
const (
	alice, bob, carol, dave = 12001, 12002, 12003, 12004
)

// dialAs is a client of a user, which need not be let in.
func (r *rig) dialAs(uid uint32, o client.Options) (c *client.Client, err error) {
	r.t.Helper()
	o.Dialer = func(ctx context.Context, _ string) (net.Conn, error) { return r.local.DialAs(ctx, uid) }
	c, err = client.Dial(r.t.Context(), r.socket, o)
	if err == nil {
		r.t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// rules is the rules of a configuration, as a file has them; ok is whether they
// are accepted.
func rules(t testing.TB, text string) (c config.Config, ok bool) {
	t.Helper()
	c, err := config.Load("", []string{"KVSTORED_ACCESS=" + text}, config.Rules{})
	var wrong config.Errors
	if err != nil && !errors.As(err, &wrong) {
		t.Fatal(err)
	}
	return c, err == nil
}

// accepted is the policy of rules that are.
func accepted(t testing.TB, text string) *access.Policy {
	t.Helper()
	c, ok := rules(t, text)
	if !ok {
		t.Fatalf("refused: %s", text)
	}
	return c.Policy(0)
}

// allButMap gives each user every right, and none the mapping.
var allButMap = fmt.Sprintf("[{uids: [%d, %d, %d, %d], match: '*', rights: [read, write, admin]}]", alice, bob, carol, dave)

// modelSpace is a space of a model.
func modelSpace(model string) key.Space {
	s := space
	s.Model = model
	return s
}

// naiveRights is what a user may do with a model by the text of a configuration:
// the table that the server is compared with.
func naiveRights(c *config.Config, uid uint32, model string) (read, write, admin bool) {
	if uid == 0 {
		return true, true, true
	}
	for _, r := range c.Access {
		re := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(r.Match))
		if slices.Contains(r.UIDs, uid) && regexp.MustCompile("^(?:"+re+")$").MatchString(model) {
			return slices.Contains(r.Rights, "read"), slices.Contains(r.Rights, "write"), slices.Contains(r.Rights, "admin")
		}
	}
	return false, false, false
}

// operation is one thing that a client does in a space.
type operation struct {
	name   string
	needs  string                                                                              // read, write, admin, or write and admin
	global bool                                                                                // in every space there can be
	do     func(ctx context.Context, c *client.Client, s *client.Space, p client.Prompt) error // nil: a batch
}

var operations = []operation{
	{"lookup", "read", false, func(ctx context.Context, c *client.Client, s *client.Space, p client.Prompt) error {
		_, err := c.Lookup(ctx, p, 0)
		return err
	}},
	{"prefetch", "read", false, func(ctx context.Context, c *client.Client, s *client.Space, p client.Prompt) error {
		j, err := c.Prefetch(ctx, p, client.PrefetchOptions{})
		if err != nil {
			return err
		}
		return j.Release(ctx)
	}},
	{"batch", "read", false, nil},
	{"get", "read", false, func(ctx context.Context, c *client.Client, s *client.Space, p client.Prompt) error {
		_, err := c.Get(ctx, p, client.GetOptions{})
		return err
	}},
	{"warm", "read", false, func(ctx context.Context, c *client.Client, s *client.Space, p client.Prompt) error {
		_, _, err := c.Warm(ctx, p, 0, 0)
		return err
	}},
	{"pin", "read", false, func(ctx context.Context, c *client.Client, s *client.Space, p client.Prompt) error {
		_, err := c.Pin(ctx, p, "name", time.Minute)
		return err
	}},
	{"reserve", "write", false, func(ctx context.Context, c *client.Client, s *client.Space, p client.Prompt) error {
		f, err := c.Reserve(ctx, p, client.ReserveOptions{Size: 64})
		if err != nil {
			return err
		}
		_, err = f.Commit(ctx)
		return err
	}},
	{"put", "write", false, func(ctx context.Context, c *client.Client, s *client.Space, p client.Prompt) error {
		_, err := c.Put(ctx, p, 0, [][]byte{make([]byte, 64)})
		return err
	}},
	{"delete", "write", false, func(ctx context.Context, c *client.Client, s *client.Space, p client.Prompt) error {
		_, err := c.DeletePrompt(ctx, p)
		return err
	}},
	{"delete chunks", "write", false, func(ctx context.Context, c *client.Client, s *client.Space, p client.Prompt) error {
		one := alone(key.Hash{1})
		one.Space = s
		_, err := c.DeletePrompt(ctx, one)
		return err
	}},
	{"delete space", "write and admin", false, func(ctx context.Context, c *client.Client, s *client.Space, p client.Prompt) error {
		_, err := c.DeleteSpace(ctx, s)
		return err
	}},
	{"stats", "read", true, func(ctx context.Context, c *client.Client, s *client.Space, p client.Prompt) error {
		_, err := c.Stats(ctx)
		return err
	}},
}

// allowed is whether a user may do an operation, by the table.
func (op *operation) allowed(c *config.Config, uid uint32, model string) bool {
	models := []string{model}
	if op.global { // one that no pattern of the tests names stands for all others
		models = []string{"a-1", "a-2", "b-1", "other/model"}
	}
	for _, m := range models {
		read, write, admin := naiveRights(c, uid, m)
		for _, word := range strings.Split(op.needs, " and ") {
			if !map[string]bool{"read": read, "write": write, "admin": admin}[word] {
				return false
			}
		}
	}
	return true
}

// ruleSets are what the tables are played with.
var ruleSets = []string{
	"[{uids: [12001], match: 'a-*', rights: [read, write]}, {uids: [12002], match: 'b-*', rights: [read, write, admin]}]",
	"[{uids: [12001, 12002], match: 'a-1', rights: [none]}, {uids: [12001, 12002], match: '*', rights: [read, write, admin]}]",
	"[{uids: [12001], match: '*-1', rights: [read]}, {uids: [12001], match: 'a-?', rights: [write]}, {uids: [12001], match: '*', rights: [admin]}]",
	"[{uids: [12001], match: '*', rights: [read], map: true}, {uids: [12002, 12003], match: 'other*', rights: [write]}]",
	"[{uids: [12001], match: 'A-*', rights: [read, write, admin]}, {uids: [12003], match: '*', rights: [read, write, admin]}]",
	"[{uids: [12001], match: '*/*', rights: [write, admin]}, {uids: [12002], match: '*', rights: [write]}, {uids: [12003], match: '*', rights: [admin]}]",
}

// TestAccessTable: every operation of every user in every space is let through or
// denied as the table says, on connections that were there before the rules. What
// is denied is denied, not missing; and of the spaces each sees its own.
func TestAccessTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		models := []string{"a-1", "a-2", "b-1", "other/model"}
		users := []uint32{0, alice, bob, carol, dave}
		r := newRig(t, options{Options: server.Options{Settings: server.Settings{Access: accepted(t, allButMap)}, Stats: func(wire.Rights) ([]byte, error) { return []byte("{}"), nil }}})
		ctx := t.Context()
		ends := map[uint32]tenant{}
		seed, denied, passed := uint64(1), 0, 0
		for _, text := range ruleSets {
			cfg, ok := rules(t, text)
			if !ok {
				t.Fatalf("refused: %s", text)
			}
			for _, uid := range users { // where they are gone since the rules before
				if ends[uid].c == nil || ends[uid].c.Ping(ctx) != nil {
					ends[uid] = r.tenant(uid, models)
				}
			}
			r.setAccess(cfg.Policy(0))
			for _, uid := range users {
				e := ends[uid]
				if cfg.Policy(0).Somewhere(uid) == 0 {
					r.gone(e.c, uid)
					continue
				}
				for _, m := range models {
					for i := range operations {
						op := &operations[i]
						seed++
						err := e.try(ctx, op, m, seed)
						want := op.allowed(&cfg, uid, m)
						if errors.Is(err, client.ErrDenied) == want || want && err != nil {
							t.Errorf("%s\nuser %d, %s in %s: %v; allowed %t", text, uid, op.name, m, err, want)
						}
						if want {
							passed++
						} else {
							denied++
						}
					}
				}
				r.checkSpaces(&cfg, uid, models)
				_, err := e.c.Unpin(ctx, "name")
				if err != nil && !errors.Is(err, client.ErrDenied) {
					t.Error(err)
				}
			}
			r.setAccess(accepted(t, allButMap))
			for uid, e := range ends {
				if _, err := e.c.Unpin(ctx, "name"); err != nil && cfg.Policy(0).Somewhere(uid) != 0 {
					t.Error(err)
				}
			}
		}
		if passed < 400 || denied < 400 {
			t.Errorf("%d were let through, %d denied", passed, denied)
		}
	})
}

// TestAccessInFullCatalog: what a user may do in its space does not change where others have
// as many open as can be remembered.
func TestAccessInFullCatalog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, _ := rules(t, ruleSets[0])
		r := newRig(t, options{Options: server.Options{Settings: server.Settings{Access: cfg.Policy(0)}}})
		ctx := t.Context()
		many, err := r.dialAs(alice, client.Options{})
		r.must(err)
		large := modelSpace("a-1")
		for i := range key.MaxTags {
			large.Tags = append(large.Tags, key.Tag{Name: fmt.Sprintf("%01000d", i), Value: strings.Repeat("v", 1000)})
		}
		for i := range 200 {
			if large.Salt = fmt.Sprint(i); i == 100 {
				large.Tags = nil // small ones in what is left of the room
			}
			_, err := many.OpenSpace(ctx, large)
			r.must(err)
		}
		const own = "b-1"
		e := r.tenant(bob, []string{own})
		if _, known := r.server.Describe(r.idOf(modelSpace(own))); known {
			t.Fatal("there is room for one more")
		}
		for i := range operations {
			if op := &operations[i]; !op.global {
				if err := e.try(ctx, op, own, uint64(i+1)); err != nil {
					t.Errorf("%s: %v", op.name, err)
				}
			}
		}
		p := client.Chain(chainIn(modelSpace(own), 100, 1))
		p.Space = e.spaces[own]
		f, err := e.c.Reserve(ctx, p, client.ReserveOptions{Size: 64})
		r.must(err)
		r.setAccess(cfg.Policy(0)) // what is under way is judged anew
		if _, err := f.Commit(ctx); err != nil {
			t.Errorf("a fill under way: %v", err)
		}
		if _, ok := r.server.MayPurge(carol, r.idOf(modelSpace(own))); ok {
			t.Error("one without rights may delete everything of it")
		}
	})
}

// try does an operation in a space of a model.
func (e *tenant) try(ctx context.Context, op *operation, model string, seed uint64) error {
	if op.do == nil {
		ch := e.raw.chain(chainIn(modelSpace(model), seed, 1))
		ch.Space = e.handles[model]
		return e.raw.batchOf(ch)
	}
	p := client.Chain(chainIn(modelSpace(model), seed, 1))
	p.Space = e.spaces[model]
	return op.do(ctx, e.c, e.spaces[model], p)
}

// setAccess has the server go on by another policy.
func (r *rig) setAccess(p *access.Policy) {
	r.server.Set(server.Settings{
		Access: p, LeaseMaxAge: time.Minute, PinMaxAge: time.Minute,
		Prefetch:    server.Prefetch{Policy: wire.PolicyTimeout, Deadline: patience, WindowBytes: mib},
		ChunkTokens: tokens, Method: "sha256", Retain: unbounded,
	})
}

// tenant is a user's connection with a space of each model open.
type tenant struct {
	c      *client.Client
	spaces map[string]*client.Space

	raw     *raw // another one, of the same spaces
	handles map[string]uint32
}

// batchOf is a batch of one prompt, whose job it releases.
func (c *raw) batchOf(ch wire.Chain) error {
	c.t.Helper()
	f := c.take(c.send(wire.OpBatch, &wire.BatchRequest{Prompts: []wire.BatchPrompt{{Chain: ch}}}))
	if f.Code != wire.CodeOK {
		return f.Code
	}
	var m wire.BatchReply
	if err := m.Decode(f.body); err != nil {
		c.t.Fatal(err)
	}
	if m.Jobs[0].Code != wire.CodeOK {
		return m.Jobs[0].Code
	}
	c.do(wire.OpRelease, &wire.IDRequest{ID: m.Jobs[0].Prefetch.Job}, &wire.ReleaseReply{})
	return nil
}

// tenant connects while nothing is denied.
func (r *rig) tenant(uid uint32, models []string) tenant {
	r.t.Helper()
	c, err := r.dialAs(uid, client.Options{StagingBytes: mib})
	r.must(err)
	if c.Mapped() != (uid == 0) || c.PutMode() != client.PutStaged {
		r.t.Fatalf("user %d: maps %t, puts %s", uid, c.Mapped(), c.PutMode())
	}
	e := tenant{c, map[string]*client.Space{}, r.connectAs(uid), map[string]uint32{}}
	e.raw.say(&wire.HelloRequest{HasSpace: true, Space: modelSpace(models[0])})
	for _, m := range models {
		e.spaces[m], err = c.OpenSpace(r.t.Context(), modelSpace(m))
		r.must(err)
		var opened wire.OpenSpaceReply
		e.raw.do(wire.OpOpenSpace, &wire.OpenSpaceRequest{Space: modelSpace(m)}, &opened)
		e.handles[m] = opened.Space.Handle
	}
	return e
}

// gone wants a connection to be closed, and none to be let in after it.
func (r *rig) gone(c *client.Client, uid uint32) {
	r.t.Helper()
	if err := c.Ping(r.t.Context()); !errors.Is(err, client.ErrDisconnected) {
		r.t.Errorf("user %d, who may not connect any more, stays connected: %v", uid, err)
	}
	if _, err := r.dialAs(uid, client.Options{}); !errors.Is(err, client.ErrDenied) {
		r.t.Errorf("user %d, who may not connect, is let in: %v", uid, err)
	}
}

// checkSpaces compares what a user is told of the spaces with the table, and what a
// new connection may open.
func (r *rig) checkSpaces(cfg *config.Config, uid uint32, models []string) {
	r.t.Helper()
	listed, _ := r.server.Spaces(uid, key.SpaceID{})
	all := true
	var want []string
	for _, m := range models {
		read, write, admin := naiveRights(cfg, uid, m)
		all = all && admin
		if read || admin {
			want = append(want, m)
		}
		s := modelSpace(m)
		c, err := r.dialAs(uid, client.Options{Inline: true, Space: &s})
		if errors.Is(err, client.ErrDenied) == (read || write || admin) {
			r.t.Errorf("user %d opens %s: %v", uid, m, err)
		}
		if err == nil {
			c.Close()
		}
	}
	var got []string
	for _, u := range listed {
		if u.Opened == nil {
			got = append(got, "")
			if !all {
				r.t.Errorf("user %d sees a space of which only the id is known", uid)
			}
			continue
		}
		got = append(got, u.Opened.Model)
		id := r.idOf(modelSpace(u.Opened.Model))
		_, _, admin := naiveRights(cfg, uid, u.Opened.Model)
		if model, may := r.server.MayPurge(uid, id); may != admin || model != u.Opened.Model || id.String() != u.Space {
			r.t.Errorf("user %d may purge %q: %t, want %t", uid, model, may, admin)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		r.t.Errorf("user %d sees %q, want %q", uid, got, want)
	}
}

// TestStoresBlind: a user that may write and not read hears that a chunk is there,
// and neither its checksum nor its length.
func TestStoresBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{Options: server.Options{Settings: server.Settings{Access: accepted(t, "[{uids: [12001], match: m, rights: [write]}, {uids: [12002], match: m, rights: [read, write]}]")}}})
		ctx, p := t.Context(), chain(1, 1)
		owner, err := r.dialAs(bob, client.Options{Space: &space})
		r.must(err)
		_, err = owner.Put(ctx, client.Chain(p), 0, [][]byte{[]byte("what bob has stored")})
		r.must(err)
		for name, o := range map[string]client.Options{"staged": {Space: &space}, "inline": {Space: &space, Inline: true}} {
			c, err := r.dialAs(alice, o)
			r.must(err)
			stored, err := c.Put(ctx, client.Chain(p), 0, [][]byte{[]byte("a guess")})
			r.must(err)
			if stored[0] != (client.Stored{Code: client.ResultExists}) {
				t.Errorf("%s: put says %+v", name, stored[0])
			}
			f, err := c.Reserve(ctx, client.Chain(p), client.ReserveOptions{Size: 7, Sums: map[int]uint64{0: 1}})
			if name == "inline" {
				continue // it takes shared memory
			}
			r.must(err)
			if f.Status(0) != client.Exists || f.Length(0) != 0 || len(f.Differ()) != 0 {
				t.Errorf("%s: reserve says %v, %d bytes, differ %d", name, f.Status(0), f.Length(0), f.Differ())
			}
			if _, err := c.Get(ctx, client.Chain(p), client.GetOptions{}); !errors.Is(err, client.ErrDenied) {
				t.Errorf("%s: get: %v", name, err)
			}
			if _, err := c.Lookup(ctx, f.Prompt(), 0); !errors.Is(err, client.ErrDenied) {
				t.Errorf("%s: a lookup by the fill: %v", name, err)
			}
		}
		if n := r.server.Stats().Differs; n != 0 {
			t.Errorf("%d chunks were compared", n)
		}
	})
}

// TestEndOfPins: a pin without a chain ends what its user has pinned under the name, takes
// the right that a pin takes and nothing to hold, and is refused with what is wrong with it.
func TestEndOfPins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		p := chain(1, 2)
		r.store(p, 0, 2)
		r.setAccess(accepted(t, "[{uids: [12001, 12002], match: '*', rights: [read]}, {uids: [12003], match: '*', rights: [write]}]"))
		a, b, c := r.connectAs(alice), r.connectAs(bob), r.connectAs(carol)
		for _, c := range []*raw{a, b, c} {
			c.greet(0)
		}
		a.do(wire.OpPin, &wire.PinRequest{Chain: a.chain(p), LookupID: "x"}, &wire.PinReply{})
		none := wire.Chain{Form: wire.FormNone}
		both := (&wire.PinRequest{Chain: wire.Chain{Tokens: wire.ViewU32s([]uint32{1, 2})}, LookupID: "x"}).Append(nil)
		both[8+4] = byte(wire.FormNone)
		for name, tc := range map[string]struct {
			c    *raw
			m    wire.Message
			code wire.Code
			want string
		}{
			"no lookup id": {a, &wire.PinRequest{Chain: none}, wire.CodeBadRequest, "needs a lookup id"},
			"a chain":      {a, bodyOf(both), wire.CodeBadRequest, "2, a chain of form none has none"},
			"an age":       {a, &wire.PinRequest{Chain: none, LookupID: "x", MaxAgeMillis: 1}, wire.CodeBadRequest, "send a max age with a chain only"},
			"no right":     {c, &wire.PinRequest{Chain: none, LookupID: "x"}, wire.CodeDenied, "pin takes the read right"},
		} {
			if f := tc.c.take(tc.c.send(wire.OpPin, tc.m)); f.Code != tc.code || !strings.Contains(text(f), tc.want) {
				t.Errorf("%s: %s, %q", name, f.Code, text(f))
			}
		}
		end := func(c *raw, name string, want uint32) {
			t.Helper()
			var m wire.PinReply
			c.do(wire.OpPin, &wire.PinRequest{Chain: none, LookupID: name}, &m)
			if m.Pinned != (wire.Count{Chunks: want}) || r.pinned() != 2*size-int64(want)*size {
				t.Errorf("%s: %+v, %d bytes are pinned", name, m.Pinned, r.pinned())
			}
		}
		end(a, "y", 0)
		end(b, "x", 0) // of another user
		if n := r.hot.Ledger().Stats().Owners; n != 1 {
			t.Errorf("%d connections count as holding something", n)
		}
		end(a, "x", 2)
	})
}

// TestNamesOfUsers: with rules the name of a pin and a lookup id count within
// their user; without, a pin's name counts on every connection.
func TestNamesOfUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		ctx, p := t.Context(), chain(1, 2)
		r.store(p, 0, 2)
		a, err := r.dialAs(alice, client.Options{Space: &space, Inline: true})
		r.must(err)
		b, err := r.dialAs(bob, client.Options{Space: &space, Inline: true})
		r.must(err)
		pin := func() {
			t.Helper()
			if _, err := a.Pin(ctx, client.Chain(p), "x", 0); err != nil || r.pinned() != 2*size {
				t.Fatalf("%v, %d bytes pinned", err, r.pinned())
			}
		}
		unpin := func(c *client.Client, want uint64) {
			t.Helper()
			if n, err := c.Unpin(ctx, "x"); n != want || err != nil {
				t.Errorf("unpinned %d, %v; want %d", n, err, want)
			}
		}
		pin()
		unpin(b, 2)
		r.setAccess(accepted(t, "[{uids: [12001, 12002], match: '*', rights: [read]}]"))
		pin()
		unpin(b, 0)
		unpin(a, 2)
		pin()
		root := r.dial(client.Options{Inline: true})
		unpin(root, 2)

		j, err := a.Prefetch(ctx, client.Chain(p), client.PrefetchOptions{LookupID: "y"})
		r.must(err)
		r.must(j.Release(ctx))
		if _, _, err := a.WarmNamed(ctx, "y", 0, 0); err != nil {
			t.Error(err)
		}
		r.setAccess(accepted(t, "[{uids: [12001, 12002], match: '*', rights: [read]}]")) // the same once more
		if _, _, err := a.WarmNamed(ctx, "y", 0, 0); err != nil {
			t.Error(err)
		}
		if _, _, err := b.WarmNamed(ctx, "y", 0, 0); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("another user's lookup id: %v", err)
		}
		r.setAccess(accepted(t, "[{uids: [12001], match: 'n', rights: [read]}]"))
		if _, _, err := a.WarmNamed(ctx, "y", 0, 0); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("a lookup id from when the user might read: %v", err)
		}
	})
}

// TestMappingIsTakenAway: a client that has mapped the arena and may not any more
// is disconnected, its leases are free, and it comes back without a mapping; the
// others stay.
func TestMappingIsTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		r.store(chain(1, 2), 0, 2)
		ctx := t.Context()
		a, err := r.dialAs(alice, client.Options{Space: &space})
		r.must(err)
		_, err = a.Prefetch(ctx, client.Chain(chain(1, 2)), client.PrefetchOptions{})
		r.must(err)
		b, err := r.dialAs(bob, client.Options{Space: &space})
		r.must(err)
		inline, err := r.dialAs(alice, client.Options{Space: &space, Inline: true})
		r.must(err)
		root := r.dial(client.Options{})
		if !a.Mapped() || !b.Mapped() || inline.Mapped() {
			t.Fatal("without rules all that ask map the arena")
		}
		r.setAccess(accepted(t, "[{uids: [12001], match: m, rights: [read, write]}, {uids: [12002], match: '*', rights: [read], map: true}]"))
		r.until("its lease is free", func() bool { return r.leased() == 0 })
		if err := a.Ping(ctx); !errors.Is(err, client.ErrDisconnected) {
			t.Fatalf("a client that may not map any more stays connected: %v", err)
		}
		for name, c := range map[string]*client.Client{"bob": b, "inline": inline, "root": root} {
			if err := c.Ping(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		a, err = r.dialAs(alice, client.Options{Space: &space})
		r.must(err)
		if a.Mapped() || a.PutMode() != client.PutStaged {
			t.Errorf("it maps again: %t, puts %s", a.Mapped(), a.PutMode())
		}
		j, err := a.Prefetch(ctx, client.Chain(chain(1, 2)), client.PrefetchOptions{})
		r.must(err)
		for i := range 2 {
			got, err := j.Chunk(ctx, i)
			r.must(err)
			r.must(tiertest.CheckPayload(chain(1, 2).Key(i), got))
		}
		r.must(j.Release(ctx))
		r.must(put(ctx, a, chain(5, 1), 0, 1))
	})
}
