package server_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// checkAlive checks that the daemon goes on as if nothing had happened.
func (r *rig) checkAlive() {
	r.t.Helper()
	c := r.greet(wire.FeatureArena | wire.FeatureStaging)
	c.ping()
	c.nc.Close()
	r.until("all connections are over", func() bool { return r.server.Stats().Connections == 0 })
	if r.leased() != 0 {
		r.t.Errorf("%d bytes are leased", r.leased())
	}
}

func hello(change func(*wire.HelloRequest)) []byte {
	m := wire.HelloRequest{MinVersion: 2, MaxVersion: 2, HasSpace: true, Space: space}
	change(&m)
	return wire.AppendRequest(nil, wire.OpHello, 7, &m)
}

const helloTimeout = 10 * time.Second

// A first frame that is not a good hello is answered if that makes sense, and
// ends the connection.
func TestBadHello(t *testing.T) {
	huge := hello(func(*wire.HelloRequest) {})
	binary.LittleEndian.PutUint32(huge, 1<<32-1)
	magic := hello(func(*wire.HelloRequest) {})
	magic[wire.HeaderBytes] ^= 1
	push := hello(func(*wire.HelloRequest) {})
	push[4] = byte(wire.KindPush)
	for name, tc := range map[string]struct {
		bytes []byte
		want  wire.Code // 0: no answer
	}{
		"nothing":       {nil, 0},
		"half a header": {make([]byte, 7), 0},
		"half a body":   {hello(func(*wire.HelloRequest) {})[:40], 0},
		"garbage":       {bytes.Repeat([]byte{'{', '"', 0x80, 0xff}, 100), wire.CodeTooLarge},
		"zeros":         {make([]byte, 64), wire.CodeBadRequest},
		"4 GiB":         {huge, wire.CodeTooLarge},
		"magic":         {magic, wire.CodeBadRequest},
		"a push":        {push, wire.CodeBadRequest},
		"a ping":        {wire.AppendRequest(nil, wire.OpPing, 1, wire.EmptyRequest{}), wire.CodeBadRequest},
		"too new":       {hello(func(m *wire.HelloRequest) { m.MinVersion, m.MaxVersion = 3, 9 }), wire.CodeVersion},
		"too old":       {hello(func(m *wire.HelloRequest) { m.MinVersion, m.MaxVersion = 0, 0 }), wire.CodeVersion},
		"a long name":   {hello(func(m *wire.HelloRequest) { m.Name = strings.Repeat("x", 1025) }), wire.CodeBadRequest},
		"no model":      {hello(func(m *wire.HelloRequest) { m.Space.Model = "" }), wire.CodeBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, options{Options: server.Options{Limits: server.Limits{HelloTimeout: helloTimeout}}})
				c := r.connect()
				_, err := c.conn.Write(tc.bytes)
				r.must(err)
				if tc.want != 0 {
					f, err := c.read()
					if err != nil || f.Kind != wire.KindReply || f.Code != tc.want || text(f) == "" {
						t.Fatalf("answered %v %q, %v; want %s", f.Header, f.body, err, tc.want)
					}
				}
				counted := func() bool { return r.server.Stats().Refused == 1 }
				if tc.want == 0 {
					r.after(helloTimeout, "it is counted", counted)
				}
				c.ended()
				r.until("it is counted", counted)
				r.checkAlive()
			})
		})
	}
}

// What breaks the framing after hello is answered, and ends the connection.
func TestBrokenFraming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		for name, tc := range map[string]struct {
			header wire.Header
			want   wire.Code
		}{
			"4 GiB":          {wire.Header{BodyBytes: 1<<32 - 1, Op: wire.OpPut, ID: 9}, wire.CodeTooLarge},
			"one too many":   {wire.Header{BodyBytes: wire.MaxBodyBytes + 1, Op: wire.OpPut, ID: 9}, wire.CodeTooLarge},
			"a reply":        {wire.Header{Kind: wire.KindReply, Op: wire.OpPing, ID: 9}, wire.CodeBadRequest},
			"an unknown one": {wire.Header{Kind: 77, Op: wire.OpPing, ID: 9}, wire.CodeBadRequest},
			"odd length":     {wire.Header{BodyBytes: 4, Op: wire.OpPing, ID: 9}, wire.CodeBadRequest},
			"a code":         {wire.Header{Code: 1, Op: wire.OpPing, ID: 9}, wire.CodeBadRequest},
			"hello again":    {wire.Header{Op: wire.OpHello, ID: 9}, wire.CodeBadRequest},
		} {
			part(t, name, func(t *testing.T) {
				c := r.greet(wire.FeatureArena | wire.FeatureStaging)
				c.t = t
				c.reserve(chain(1, 4))
				c.write(append(tc.header.Append(nil), make([]byte, tc.header.BodyBytes&7)...))
				f, err := c.read()
				if err != nil || f.ID != 9 || f.Code != tc.want {
					t.Fatalf("answered %v, %v; want %s", f.Header, err, tc.want)
				}
				c.ended()
				r.until("the fill is given back", func() bool { return r.leased() == 0 })
			})
		}
		r.checkAlive()
	})
}

// Half a frame costs its sender its connection only, and others nothing.
func TestTruncated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		whole := wire.AppendRequest(nil, wire.OpPin, 1, &wire.PinRequest{Chain: wire.Chain{Form: wire.FormNone}, LookupID: "x"})
		var hanging []*raw
		for n := 1; n < len(whole); n++ {
			c := r.greet(wire.FeatureArena | wire.FeatureStaging)
			c.reserve(chain(uint64(n), 2))
			c.write(whole[:n])
			if n%2 == 0 {
				hanging = append(hanging, c)
			} else {
				c.nc.Close()
			}
		}
		r.until("those that left gave back what they had", func() bool { return r.leased() == int64(len(hanging))*2*size })
		other := r.greet(0)
		other.ping()
		for _, c := range hanging {
			c.write(append(whole[len(whole)-1:], whole...)[:1]) // alive: what it says is read on
			c.nc.Close()
		}
		other.nc.Close()
		r.checkAlive()
	})
}

// Everything wrong inside a frame is refused with its code, and the connection
// stays.
func TestBadRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		r.store(chain(1, 2), 0, 2)
		c := r.greet(wire.FeatureArena | wire.FeatureStaging)
		one := wire.ViewU32s([]uint32{size})
		given := c.chain(chain(9, 2))
		var s wire.OpenSpaceReply
		hashed := space
		hashed.Method = key.SHA256
		c.do(wire.OpOpenSpace, &wire.OpenSpaceRequest{Space: hashed}, &s)
		with := func(change func(*wire.Chain)) wire.Chain {
			ch := given
			change(&ch)
			return ch
		}
		lookup := func(ch wire.Chain) *wire.LookupRequest { return &wire.LookupRequest{Chain: ch} }
		for name, tc := range map[string]struct {
			want wire.Code
			op   wire.Op
			m    wire.Message
		}{
			"unknown op":         {wire.CodeUnknownOp, 200, wire.EmptyRequest{}},
			"op 0":               {wire.CodeUnknownOp, 0, wire.EmptyRequest{}},
			"8 bytes too many":   {wire.CodeBadRequest, wire.OpPing, bodyOf(strings.Repeat("\x00", 15) + "\x01")},
			"no body":            {wire.CodeBadRequest, wire.OpPrefetch, bodyOf("")},
			"unknown option":     {wire.CodeUnknownOption, wire.OpPing, bodyOf("\x01\x00\x00\x00\x00\x00\x00\x00\x01\x80\x00\x00\x00\x00\x00\x00")},
			"unknown form":       {wire.CodeBadRequest, wire.OpLookup, lookup(with(func(ch *wire.Chain) { ch.Form = 9 }))},
			"unknown space":      {wire.CodeUnknownSpace, wire.OpLookup, lookup(with(func(ch *wire.Chain) { ch.Space = 1 << 31 }))},
			"skip":               {wire.CodeBadRequest, wire.OpLookup, lookup(with(func(ch *wire.Chain) { ch.Skip = 3 }))},
			"skip much":          {wire.CodeBadRequest, wire.OpLookup, lookup(with(func(ch *wire.Chain) { ch.Skip = 1<<32 - 1 }))},
			"unknown job":        {wire.CodeUnknownJob, wire.OpLookup, lookup(refChain(77))},
			"hash twice":         {wire.CodeBadRequest, wire.OpLookup, lookup(with(func(ch *wire.Chain) { ch.Hashes = bytes.Repeat(ch.Hashes[:16], 2) }))},
			"zero hash":          {wire.CodeBadRequest, wire.OpLookup, lookup(with(func(ch *wire.Chain) { ch.Hashes = make([]byte, 32) }))},
			"lengths":            {wire.CodeBadRequest, wire.OpLookup, lookup(with(func(ch *wire.Chain) { ch.LastTokens = tokens + 1 }))},
			"width":              {wire.CodeBadRequest, wire.OpLookup, lookup(with(func(ch *wire.Chain) { ch.Width = 15 }))},
			"tokens":             {wire.CodeBadRequest, wire.OpLookup, lookup(wire.Chain{Space: c.space, Tokens: one})},
			"odd tokens":         {wire.CodeBadRequest, wire.OpLookup, bodyOf(string(oddTokens(s.Space.Handle)))},
			"width of tokens":    {wire.CodeBadRequest, wire.OpLookup, lookup(with(func(ch *wire.Chain) { ch.Space, ch.Width, ch.Hashes = s.Space.Handle, 8, ch.Hashes[:16] }))},
			"too long":           {wire.CodeBadRequest, wire.OpLookup, lookup(tooLong(c.space))},
			"first":              {wire.CodeBadRequest, wire.OpReserve, &wire.ReserveRequest{Chain: given, First: 3, Sizes: one}},
			"count":              {wire.CodeBadRequest, wire.OpReserve, &wire.ReserveRequest{Chain: given, First: 1, Count: 1<<32 - 1, Sizes: one}},
			"sizes":              {wire.CodeBadRequest, wire.OpReserve, &wire.ReserveRequest{Chain: given, Sizes: wire.ViewU32s([]uint32{1, 2, 3})}},
			"no sizes":           {wire.CodeBadRequest, wire.OpReserve, &wire.ReserveRequest{Chain: given}},
			"size 0":             {wire.CodeBadRequest, wire.OpReserve, &wire.ReserveRequest{Chain: given, Sizes: wire.ViewU32s([]uint32{0})}},
			"above the arena":    {wire.CodeTooLarge, wire.OpReserve, &wire.ReserveRequest{Chain: given, Sizes: wire.ViewU32s([]uint32{4*mib + 1})}},
			"above a payload":    {wire.CodeTooLarge, wire.OpReserve, &wire.ReserveRequest{Chain: given, Sizes: wire.ViewU32s([]uint32{1<<32 - 1})}},
			"never reserved":     {wire.CodeUnknownFill, wire.OpCommit, &wire.FillRequest{Fill: 1}},
			"abort of nothing":   {wire.CodeUnknownFill, wire.OpAbort, &wire.FillRequest{Fill: 1 << 63}},
			"never leased":       {wire.CodeUnknownJob, wire.OpRelease, &wire.IDRequest{ID: 1}},
			"renew":              {wire.CodeUnknownJob, wire.OpRenew, &wire.IDRequest{ID: 1}},
			"wait":               {wire.CodeUnknownJob, wire.OpWait, &wire.WaitRequest{Job: 1, Deadline: wire.Deadline{Given: true}}},
			"put of nothing":     {wire.CodeBadRequest, wire.OpPut, &wire.PutRequest{Chain: given}},
			"put of too many":    {wire.CodeBadRequest, wire.OpPut, &wire.PutRequest{Chain: given, Sizes: wire.ViewU32s([]uint32{1, 1, 1}), Payloads: []byte("abc")}},
			"put of too little":  {wire.CodeBadRequest, wire.OpPut, &wire.PutRequest{Chain: given, Sizes: wire.ViewU32s([]uint32{1, 8}), Payloads: []byte("a")}},
			"unknown policy":     {wire.CodeBadRequest, wire.OpPrefetch, &wire.PrefetchRequest{Chain: given, Policy: 9}},
			"unknown flag":       {wire.CodeBadRequest, wire.OpPrefetch, &wire.PrefetchRequest{Chain: given, Flags: 128}},
			"unknown tier":       {wire.CodeBadRequest, wire.OpPrefetch, &wire.PrefetchRequest{Chain: given, Search: 128}},
			"reserve of none":    {wire.CodeBadRequest, wire.OpReserve, &wire.ReserveRequest{Chain: wire.Chain{Space: c.space, Form: wire.FormNone}, Count: 1, Sizes: one}},
			"space only":         {wire.CodeBadRequest, wire.OpLookup, lookup(wire.Chain{Space: c.space, Form: wire.FormNone})},
			"not kept":           {wire.CodeUnknownChain, wire.OpLookup, lookup(wire.Chain{Form: wire.FormKept, ID: 9})},
			"retired flag":       {wire.CodeBadRequest, wire.OpReserve, &wire.ReserveRequest{Chain: given, Sizes: one, Flags: 1 << 2}},
			"delete of no space": {wire.CodeUnknownSpace, wire.OpDelete, &wire.DeleteRequest{Chain: wire.Chain{Form: wire.FormNone, Space: 99}}},
			"bad space":          {wire.CodeBadRequest, wire.OpOpenSpace, &wire.OpenSpaceRequest{}},
		} {
			part(t, name, func(t *testing.T) {
				c.t = t
				c.refused(tc.want, tc.op, tc.m)
				c.ping()
			})
		}
		c.t = t
		if r.leased() != 0 {
			t.Errorf("%d bytes are leased", r.leased())
		}
		bare := r.greet(0)
		bare.refused(wire.CodeUnsupported, wire.OpReserve, &wire.ReserveRequest{Chain: given, Sizes: one})
	})
}

// bodyOf is a body that no message would make.
type bodyOf string

func (b bodyOf) Append(dst []byte) []byte { return append(dst, b...) }
func (bodyOf) Decode([]byte) error        { return nil }

// oddTokens is a lookup with a token of 4 bytes where 2 tokens are announced.
func oddTokens(handle uint32) []byte {
	m := wire.LookupRequest{Chain: wire.Chain{Space: handle, Tokens: wire.ViewU32s([]uint32{1, 2})}}
	b := m.Append(nil)
	b[8+24] = 4 // its count
	return b
}

func tooLong(handle uint32) wire.Chain {
	n := key.MaxChunks + 1
	return wire.Chain{Space: handle, Form: wire.FormHashes, Width: 8, Hashes: make([]byte, 8*n)}
}

// Slots and leases can be given back once.
func TestTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := r.greet(wire.FeatureArena | wire.FeatureStaging)
		m := c.reserve(chain(1, 4))
		var stored wire.StoreReply
		part := wire.FillRequest{Fill: m.Fill, First: 1, Count: 2}
		c.do(wire.OpCommit, &part, &stored)
		c.do(wire.OpCommit, &part, &stored)
		for i := range stored.Results.Len() {
			if s := stored.Results.At(i); s.Code != wire.CodeNotReserved || s.Sum != 0 {
				t.Errorf("committed twice: %+v", s)
			}
		}
		c.do(wire.OpAbort, &part, wire.EmptyReply{})
		c.refused(wire.CodeNotReserved, wire.OpCommit, &wire.FillRequest{Fill: m.Fill, First: 4})
		c.refused(wire.CodeNotReserved, wire.OpCommit, &wire.FillRequest{Fill: m.Fill, First: 3, Count: 2})
		c.refused(wire.CodeNotReserved, wire.OpAbort, &wire.FillRequest{Fill: m.Fill, First: 1<<32 - 1, Count: 1<<32 - 1})
		c.do(wire.OpAbort, &wire.FillRequest{Fill: m.Fill}, wire.EmptyReply{})
		c.refused(wire.CodeUnknownFill, wire.OpAbort, &wire.FillRequest{Fill: m.Fill})
		c.refused(wire.CodeUnknownFill, wire.OpCommit, &wire.FillRequest{Fill: m.Fill})
		j := c.prefetch(chain(1, 4)) // chunk 0 was aborted
		if j.Match.Total.Chunks != 0 || !j.State.Done() {
			t.Errorf("matched %+v", j.Match)
		}
		c.do(wire.OpRelease, &wire.IDRequest{ID: j.Job}, &wire.ReleaseReply{})
		c.refused(wire.CodeUnknownJob, wire.OpRelease, &wire.IDRequest{ID: j.Job})
		c.refused(wire.CodeUnknownJob, wire.OpRelease, &wire.IDRequest{ID: j.Job})
	})
}

// A connection does not get at the jobs and fills of another.
func TestForeign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		r.store(chain(1, 4), 0, 4)
		wants := wire.FeatureArena | wire.FeatureStaging
		a, b := r.greet(wants), r.greet(wants)
		f, j := a.reserve(chain(2, 4)), a.prefetch(chain(1, 4))
		for _, op := range []wire.Op{wire.OpRelease, wire.OpRenew} {
			b.refused(wire.CodeUnknownJob, op, &wire.IDRequest{ID: j.Job})
		}
		b.refused(wire.CodeUnknownJob, wire.OpWait, &wire.WaitRequest{Job: j.Job, Deadline: wire.Deadline{Given: true}})
		b.refused(wire.CodeUnknownJob, wire.OpGet, &wire.GetRequest{Chain: refChain(j.Job)})
		for _, op := range []wire.Op{wire.OpCommit, wire.OpAbort} {
			b.refused(wire.CodeUnknownFill, op, &wire.FillRequest{Fill: f.Fill})
		}
		if r.leased() != 8*size {
			t.Errorf("%d bytes are leased", r.leased())
		}
	})
}

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook, open := gate()
		r := newRig(t, options{hook: hook, capacity: 32 * mib, Options: server.Options{Limits: server.Limits{Connections: 3}}})
		defer close(open)
		r.store(chain(1, 1), 0, 1)
		r.onDisk(chain(2, 1), 0, 1)
		c := r.greet(wire.FeatureArena | wire.FeatureStaging)
		one := wire.ViewU32s([]uint32{1})
		for i := range 1024 {
			c.prefetch(chain(1, 1))
			c.do(wire.OpReserve, &wire.ReserveRequest{Chain: c.chain(chain(uint64(100+i), 1)), Sizes: one}, &wire.ReserveReply{})
		}
		c.refused(wire.CodeOverBudget, wire.OpPrefetch, &wire.PrefetchRequest{Chain: c.chain(chain(1, 1))})
		c.refused(wire.CodeOverBudget, wire.OpReserve, &wire.ReserveRequest{Chain: c.chain(chain(3, 1)), Sizes: one})

		d := r.greet(0)
		j := d.prefetch(chain(2, 1))
		var waits []uint64
		for range 1024 {
			waits = append(waits, d.send(wire.OpWait, &wire.WaitRequest{Job: j.Job, MinTokens: 1, Deadline: wire.Deadline{Given: true, Millis: 1 << 30}}))
		}
		d.refused(wire.CodeOverBudget, wire.OpWait, &wire.WaitRequest{Job: j.Job, MinTokens: 1, Deadline: wire.Deadline{Given: true, Millis: 1 << 30}})
		d.do(wire.OpRelease, &wire.IDRequest{ID: j.Job}, &wire.ReleaseReply{})
		for _, id := range waits {
			d.await(id, &wire.JobState{})
		}
		for i := range 1023 {
			s := space
			s.Model = fmt.Sprint(i)
			d.do(wire.OpOpenSpace, &wire.OpenSpaceRequest{Space: s}, &wire.OpenSpaceReply{})
		}
		s := space
		s.Model = "one more"
		d.refused(wire.CodeOverBudget, wire.OpOpenSpace, &wire.OpenSpaceRequest{Space: s})

		third := r.greet(0)
		fourth := r.connect()
		if f, err := fourth.read(); err != nil || f.Code != wire.CodeOverBudget {
			t.Errorf("one connection too many: %v, %v", f.Header, err)
		}
		fourth.ended()
		third.nc.Close()
		r.until("a connection is free", func() bool { return r.server.Stats().Connections == 2 })
		r.greet(0).ping()
	})
}

const stall = 30 * time.Second

// stalling is a server that closes connections whose clients do not read, and a prompt of
// 2 MiB in it.
func stalling(t *testing.T) (*rig, *key.Chain) {
	r := newRig(t, options{Options: server.Options{Limits: server.Limits{QueueBytes: 256 * kib, StallTimeout: stall}}})
	p := chain(1, 128)
	r.store(p, 0, 128)
	return r, p
}

// A client that asks and never reads loses its connection once too much has waited for
// it for the time of a stall.
func TestNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := stalling(t)
		c := r.greet(wire.FeatureArena | wire.FeatureStaging)
		c.reserve(chain(2, 4))
		for id := range uint64(8) {
			c.write(wire.AppendRequest(nil, wire.OpGet, 1+id, &wire.GetRequest{Chain: c.chain(p)}))
		}
		r.after(stall, "the connection is closed", func() bool { return r.server.Stats().Connections == 0 })
		if r.leased() != 0 {
			t.Errorf("%d bytes are leased", r.leased())
		}
	})
}

// One that reads a little before each stall is over keeps it, and gets every byte.
func TestReadsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := stalling(t)
		slow := r.greet(0)
		for id := range uint64(3) {
			slow.write(wire.AppendRequest(nil, wire.OpGet, 100+id, &wire.GetRequest{Chain: slow.chain(p)}))
		}
		var all []byte
		piece := make([]byte, 256*kib) // as little as it may read in the time of a stall
		want := 3 * (wire.HeaderBytes + 8 + 8 + 128*(16+size))
		for len(all) < want {
			time.Sleep(stall - 1)
			n, err := io.ReadFull(slow.nc, piece[:min(len(piece), want-len(all))])
			r.must(err)
			all = append(all, piece[:n]...)
		}
		if len(all) != want || binary.LittleEndian.Uint64(all[2*want/3+8:]) != 102 {
			t.Errorf("%d bytes came, want %d", len(all), want)
		}
		slow.ping()
	})
}

// Who has not said hello is no client yet: the others' shares stay as they
// are, and a daemon that stops does not wait for it.
func TestSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{Options: server.Options{Limits: server.Limits{HelloTimeout: time.Hour}}})
		silent := r.connect()
		r.checkAlive() // which was accepted later
		if n := r.hot.Ledger().Stats().Owners; n != 0 {
			t.Errorf("%d clients", n)
		}
		r.stop()
		silent.ended()
	})
}
