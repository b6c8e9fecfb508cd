package resp_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/internal/resp/resptest"
	"github.com/kvstored/kvstored/tier/tierfault"
)

// newDropRig is a rig as the daemon is configured by default.
func newDropRig(t testing.TB, o resp.Options) *rig { return makeRig(t, 64<<20, o) }

// exact is a client that parses nothing.
func (r *rig) exact(addr net.Addr) *resptest.Exact { return resptest.NewExact(r.dial(addr)) }

func failing(tierfault.Call) tierfault.Fault {
	return tierfault.Fault{Err: errors.New("broken")}
}

// holds wants a name to have a value, or none: nil.
func holds(t *testing.T, c *resptest.Exact, key string, value []byte) {
	t.Helper()
	got := make([]byte, max(1, len(value)))
	err := c.Get(key, got)
	there, eerr := c.Exists(key)
	switch {
	case eerr != nil:
		t.Fatalf("EXISTS %.20s: %v", key, eerr)
	case value == nil && (!errors.Is(err, resptest.ErrMissing) || there):
		t.Fatalf("GET %.20s: %v; EXISTS %v; want nothing", key, err, there)
	case value != nil && (err != nil || !bytes.Equal(got, value) || !there):
		t.Fatalf("GET %.20s: %v; EXISTS %v; want a value", key, err, there)
	}
}

// A value that cannot be kept takes the old one with it, and the client that
// knows no errors stays in step.
func TestExactClientIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDropRig(t, resp.Options{}) // one connection may have 32 MiB
		for _, addr := range []net.Addr{r.unix, r.tcp} {
			c := r.exact(addr)
			set := func(key string, n int) []byte {
				t.Helper()
				value := bytes.Repeat([]byte{byte(n)}, n)
				if err := c.Set(key, value); err != nil {
					t.Fatalf("SET %.20s of %d bytes: %v", key, n, err)
				}
				return value
			}
			small, b := set("a", 100), set("b", 200)
			holds(t, c, "a", small)
			set("a", 40<<20) // over budget
			holds(t, c, "a", nil)
			holds(t, c, "a", set("a", 300))
			set("a", 65<<20) // too large for any daemon
			holds(t, c, "a", nil)
			long := strings.Repeat("n", 17<<10)
			set(long, 10)
			holds(t, c, long, nil)
			if had, err := c.Del(long); had || err != nil {
				t.Errorf("DEL of a long name: %v, %v", had, err)
			}
			set("never", 40<<20)
			holds(t, c, "never", nil)
			holds(t, c, "b", b)
			if had, err := c.Del("b"); !had || err != nil {
				t.Errorf("DEL: %v, %v", had, err)
			}
		}
		st := r.server.Stats()
		if st.Errors != 0 || st.HungUp != 0 || st.Dropped["no_room"] != 4 || st.Dropped["too_large"] != 4 || st.Stored != 6 {
			t.Errorf("%+v", st)
		}
	})
}

// Neither does the disk's trouble, nor an old value that lies there.
func TestExactClientAndADiskInTrouble(t *testing.T) {
	for name, fault := range map[string]tierfault.Fault{"fails": {Err: errors.New("broken")}, "hangs": {Hang: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newDropRig(t, resp.Options{})
				c := r.exact(r.unix)
				for _, key := range []string{"set", "del", "get"} {
					if err := c.Set(key, []byte("old")); err != nil {
						t.Fatal(err)
					}
				}
				r.store.Flush()
				r.store.Fault(func(tierfault.Call) tierfault.Fault { return fault })
				holds(t, c, "get", []byte("old")) // out of DRAM
				if err := c.Set("set", []byte("new")); err != nil {
					t.Fatal(err)
				}
				if had, err := c.Del("del"); !had || err != nil {
					t.Fatalf("DEL: %v, %v", had, err)
				}
				if err := c.Set("set", []byte("newer")); err != nil {
					t.Fatal(err)
				}
				if err := c.Set("fresh", []byte("new")); err != nil {
					t.Fatal(err)
				}
				check := func() {
					t.Helper()
					holds(t, c, "set", nil)
					holds(t, c, "del", nil)
					holds(t, c, "fresh", []byte("new"))
				}
				check()
				if st := r.server.Stats(); st.Owed != 2 || st.Dropped["tiers"] != 1 || st.Dropped["owed"] != 1 || st.Errors != 0 {
					t.Errorf("%+v", st)
				}
				// All that shows names agrees.
				p := r.dial(r.tcp)
				p.do("*3\r\n$-1\r\n$-1\r\n"+bulk("new"), "MGET", "set", "del", "fresh")
				p.do(":0\r\n", "STRLEN", "set")
				p.do(":-2\r\n", "TTL", "set")
				p.do(":0\r\n", "EXISTS", "set", "del")
				p.do(":0\r\n", "DEL", "set", "del")
				p.fails("ERR the value was not stored", "MSET", "set", "x") // no exact command
				r.store.Fault(nil)
				for begun := time.Now(); r.server.Stats().Owed > 0; time.Sleep(time.Second) {
					if time.Since(begun) > patience {
						t.Fatal("the old values stay owed")
					}
				}
				check()
				if err := c.Set("set", []byte("new")); err != nil {
					t.Fatal(err)
				}
				holds(t, c, "set", []byte("new"))
			})
		})
	}
}

// Where it is not certain that the old value is gone nothing is answered.
func TestExactClientIsNotLiedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ask := range [][]string{{"SET", "a", "new"}, {"DEL", "a"}} {
			r := newDropRig(t, resp.Options{})
			c := r.dial(r.unix)
			c.do("+OK\r\n", "SET", "a", "old")
			r.store.Flush()
			r.store.MaxOwed = 1
			r.restart()
			r.store.Fault(failing)
			c = r.dial(r.unix)
			c.do("+OK\r\n", "SET", "owed", "old")
			r.store.Fault(nil)
			r.store.Flush()
			r.store.Fault(failing)
			c.do(":1\r\n", "DEL", "owed")
			c.do(":0\r\n", "EXISTS", "none")
			c.send(encode(ask...))
			c.silent()
			if st := r.server.Stats(); st.HungUp != 1 {
				t.Errorf("%v: %+v", ask, st)
			}
			c = r.dial(r.unix) // one that can be told
			c.ask("CLIENT", "ID")
			c.fails("ERR", ask...)
			r.store.Fault(nil)
		}
	})
}

// array is a command of words.
func array(words string) string { return string(encode(strings.Fields(words)...)) }

// silent wants the end of the connection, and not a byte before it.
func (c *conn) silent() {
	c.t.Helper()
	if rest, err := io.ReadAll(c.in); err != nil && !strings.Contains(err.Error(), "reset") || len(rest) > 0 {
		c.t.Fatalf("got %.200q, %v; want the end", rest, err)
	}
}

// A command that no exact client sends ends its connection without a word: it
// could only be answered by an error. The answers before it arrive.
func TestExactClientThatIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDropRig(t, resp.Options{})
		for _, in := range []string{
			array("SET a"), array("SET a b c"), array("SET a b EX"), array("SET a b EX 0"), array("SET a b NX XX"), array("GET"), array("GET a b"), array("EXISTS"), array("DEL"),
			"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$x\r\n", "*2\r\n$3\r\nGET\r\n$-1\r\n", "*2\r\n$3\r\nDEL\r\n$1\r\nab\r\n", "*2\r\n$6\r\nEXISTS\r\n:1\r\n",
			"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$999999999999\r\n",
		} {
			c := r.dial(r.unix)
			c.do("+OK\r\n", "SET", "a", "1")
			c.send(append(encode("GET", "a"), in...))
			c.expect(bulk("1"))
			c.silent()
			// The same of a client that can be told.
			c = r.dial(r.unix)
			c.do("+OK\r\n", "CLIENT", "SETNAME", "x")
			c.do("+OK\r\n", "SET", "a", "1")
			c.send([]byte(in))
			if line, err := c.in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "-ERR") {
				t.Errorf("%q: told %q, %v", in, line, err)
			}
		}
	})
}

// HELLO and CLIENT tell that errors are understood, and so does resp_full:
// error. The old value stays then.
func TestWhoIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		huge := strings.Repeat("h", 5<<20) // half of DRAM may be leased
		for name, hello := range map[string][]string{
			"HELLO": {"HELLO", "2"}, "HELLO 3": {"HELLO", "3"}, "HELLO 4": {"HELLO", "4"}, "CLIENT": {"CLIENT", "SETINFO", "LIB-NAME", "x"}, "none": nil, "error": nil,
		} {
			r := makeRig(t, 8<<20, resp.Options{Settings: resp.Settings{Errors: name == "error"}})
			c := r.dial(r.tcp)
			if hello != nil {
				c.ask(hello...)
			}
			c.do("+OK\r\n", "SET", "a", "old")
			if name == "none" {
				c.do("+OK\r\n", "SET", "a", huge)
				c.do("$-1\r\n", "GET", "a")
				continue
			}
			c.fails("OOM", "SET", "a", huge)
			c.do(bulk("old"), "GET", "a")
			c.fails("ERR wrong number", "GET")
			c.do(bulk("old"), "GET", "a")
		}
	})
}

// Errors of other commands, which only a client sends that reads lines, leave
// the connection as it is.
func TestOtherCommandsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := makeRig(t, 8<<20, resp.Options{})
		c := r.dial(r.unix)
		huge := strings.Repeat("h", 5<<20)
		c.fails("ERR unknown command", "GETSET", "a", "b")
		c.fails("ERR wrong number", "STRLEN")
		c.do("+OK\r\n", "SET", "a", "1")
		c.fails("OOM", "MSET", "a", huge)
		c.fails("OOM", "SETEX", "b", "1", huge)
		c.fails("ERR AUTH", "AUTH", "x")
		c.do(bulk("1"), "GET", "a")
		// A condition is not met, rather than met and forgotten: it may be a lock.
		c.do("$-1\r\n", "SET", "b", huge, "NX")
		c.do("$-1\r\n", "SET", "a", huge, "XX")
		c.do(bulk("1"), "GET", "a")
		c.do("+OK\r\n", "SET", "a", huge, "EX", "100")
		c.do("$-1\r\n", "GET", "a")
	})
}

// In a transaction the four commands fail no more than outside.
func TestExactTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := makeRig(t, 8<<20, resp.Options{})
		c := r.dial(r.unix)
		huge := strings.Repeat("h", 5<<20)
		c.do("+OK\r\n", "SET", "a", "1")
		c.do("+OK\r\n", "MULTI")
		c.do(queued, "SET", "b", "2")
		c.do(queued, "SET", "a", huge)
		c.do(queued, "GET", "a")
		c.do("*3\r\n+OK\r\n+OK\r\n$-1\r\n", "EXEC")
		c.do(bulk("2"), "GET", "b")
		c.do("+OK\r\n", "MULTI")
		c.do(queued, "SET", "a", "1")
		c.fails("ERR unknown command", "WATCH", "a")
		c.do(queued, "SET", "a", "1")
		c.do(execAbort, "EXEC")
		c.do("$-1\r\n", "GET", "a")
		c.do("+OK\r\n", "MULTI")
		c.do(queued, "SET", "c", "1", "WHAT") // only seen when it runs
		c.do(queued, "SET", "d", "1")
		c.send(encode("EXEC"))
		c.expect("*2\r\n")
		c.silent()
		c = r.dial(r.unix)
		c.do(":0\r\n", "EXISTS", "c", "d")
	})
}

// A client that has not given the password is told so, though it may not read the
// answer as an error: the stream ends there. AUTH itself is answered by a line.
func TestExactClientWithoutPassword(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDropRig(t, resp.Options{Settings: resp.Settings{Password: "secret"}})
		for _, ask := range [][]string{{"SET", "a", "1"}, {"GET", "a"}, {"EXISTS", "a"}, {"DEL", "a"}} {
			c := r.dial(r.tcp)
			c.send(encode(ask...))
			c.expect("-NOAUTH Authentication required.\r\n")
			c.silent()
		}
		c := r.exact(r.tcp)
		if err := c.Auth("wrong"); !errors.Is(err, resptest.ErrAnswer) {
			t.Errorf("AUTH: %v", err)
		}
		if err := c.Auth("secret"); err != nil {
			t.Fatal(err)
		}
		if err := c.Set("a", []byte("1")); err != nil {
			t.Fatal(err)
		}
		holds(t, c, "a", []byte("1"))
		p := r.dial(r.tcp) // it says who it is first
		p.fails("NOAUTH", "CLIENT", "SETNAME", "x")
		p.fails("NOAUTH", "GET", "a")
		p.do("+OK\r\n", "AUTH", "secret")
		p.do(bulk("1"), "GET", "a")
	})
}
