package resp_test

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/internal/test/logtest"
)

func TestCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, resp.Options{})
		for _, addr := range []net.Addr{r.unix, r.tcp} {
			c := r.dial(addr)
			c.do("+PONG\r\n", "PING")
			c.do(bulk("hi"), "ping", "hi")
			c.do("$-1\r\n", "GET", "a")
			c.do(":0\r\n", "EXISTS", "a")
			c.do("+OK\r\n", "SET", "a", "1")
			c.do(bulk("1"), "GET", "a")
			c.do("+OK\r\n", "SET", "a", "")
			c.do("$0\r\n\r\n", "GET", "a")
			c.do(":1\r\n", "EXISTS", "a")
			c.do(":3\r\n", "EXISTS", "a", "a", "b", "a")
			c.do(":0\r\n", "STRLEN", "b")
			c.do("$-1\r\n", "SET", "a", "x", "NX")
			c.do("$-1\r\n", "SET", "b", "x", "XX")
			c.do("+OK\r\n", "SET", "b", "xyz", "nx", "ex", "100")
			c.do(":3\r\n", "STRLEN", "b")
			c.left(100, "TTL", "b")
			c.do(":-1\r\n", "TTL", "a")
			c.do(":-2\r\n", "TTL", "c")
			c.do("+OK\r\n", "SETEX", "b", "50", "x")
			c.left(50, "TTL", "b")
			c.do(bulk("x"), "GET", "b")
			c.do("+OK\r\n", "SET", "b", "x", "PX", "1")
			time.Sleep(time.Millisecond)
			c.do("$-1\r\n", "GET", "b")
			c.do(":0\r\n", "EXISTS", "b")
			c.do("+OK\r\n", "MSET", "x", "1", "y", "")
			c.do("*3\r\n"+bulk("1")+"$-1\r\n"+bulk(""), "MGET", "x", "z", "y")
			c.do(":2\r\n", "DEL", "x", "y", "z")
			c.do(":1\r\n", "DEL", "a")
			c.do("+OK\r\n", "SELECT", "0")
			c.fails("ERR DB index", "SELECT", "1")
			c.do("+OK\r\n", "CLIENT", "SETINFO", "LIB-NAME", "redis-py")
			c.fails("NOPROTO", "HELLO", "4")
			c.fails("ERR unknown command 'nonsense'", "NONSENSE", "a", "b")
			c.fails("ERR wrong number", "GET")
			c.fails("ERR wrong number", "GET", "a", "b")
			c.fails("ERR wrong number", "MSET", "a", "1", "b")
			c.fails("ERR syntax error", "SET", "a", "1", "what")
			c.fails("ERR syntax error", "SET", "a", "1", "EX")
			c.fails("ERR value is not", "SET", "a", "1", "EX", "1x")
			c.fails("ERR invalid expire", "SET", "a", "1", "EX", "0")
			c.fails("ERR value is not", "SETEX", "a", "1x", "1")
			c.fails("ERR invalid expire", "SETEX", "a", "-1", "1")
			c.fails("ERR wrong number", "SETEX", "a", "1")
			c.fails("ERR AUTH", "AUTH", "x")
			c.do("$-1\r\n", "GET", "a") // what failed was not stored
			c.send([]byte("\r\nping\r\n"))
			c.expect("+PONG\r\n")
			c.do("+OK\r\n", "QUIT")
			c.closed("")
		}
	})
}

func TestPassword(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, resp.Options{Settings: resp.Settings{Password: "secret"}})
		c := r.dial(r.tcp)
		c.fails("NOAUTH", "PING")
		c.fails("NOAUTH", "SET", "a", "1")
		c.fails("NOAUTH", "HELLO")
		c.fails("WRONGPASS", "AUTH", "wrong")
		c.fails("WRONGPASS", "AUTH", "other", "secret")
		c.fails("NOAUTH", "GET", "a")
		c.do("+OK\r\n", "AUTH", "default", "secret")
		c.do("$-1\r\n", "GET", "a")
		c = r.dial(r.tcp)
		c.send(encode("HELLO", "2", "AUTH", "default", "secret", "SETNAME", "x"))
		c.expect("*14\r\n$6\r\nserver\r\n")
		c = r.dial(r.tcp)
		c.send([]byte("*2\r\n$3\r\nGET\r\n$1000000\r\n"))
		c.closed("unauthenticated bulk length")
		c = r.dial(r.tcp)
		c.send([]byte("*1000\r\n"))
		c.closed("unauthenticated multibulk length")
		r.dial(r.unix).do("+PONG\r\n", "PING") // who may open the socket need not say more
	})
}

// Refused logins are all counted, and logged once in a while, without the users
// and passwords that were tried.
func TestRefusedLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(logtest.Book)
		r := newRig(t, resp.Options{Settings: resp.Settings{Password: "secret"}, Log: zerolog.New(log)})
		for range 20 { // each waits for 300 ms

			c := r.dial(r.tcp)
			c.fails("WRONGPASS", "AUTH", "a-guess")
			c.fails("WRONGPASS", "HELLO", "2", "AUTH", "a-user", "secret")
			c.fails("NOAUTH", "GET", "a") // is no login
			c.do("+OK\r\n", "AUTH", "secret")
		}
		if st := r.server.Stats(); st.LoginsRefused != 40 || st.Errors != 60 {
			t.Errorf("%d logins refused, %d errors; want 40 and 60", st.LoginsRefused, st.Errors)
		}
		all := log.String()
		if n := strings.Count(all, "\n"); n != 6 || !strings.Contains(all, "127.0.0.1:") || !strings.Contains(all, `"level":"warn"`) {
			t.Errorf("%d lines in the log of 6 s:\n%s", n, all)
		}
		for _, secret := range []string{"guess", "a-user", "secret"} {
			if strings.Contains(all, secret) {
				t.Errorf("the log says %q:\n%s", secret, all)
			}
		}
	})
}

func TestGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, resp.Options{})
		for _, tt := range []struct{ in, says string }{
			{"*x\r\n", "invalid multibulk length"},
			{"*99999999\r\n", "invalid multibulk length"},
			{"*2\r\n:3\r\n", "expected '$'"},
			{"*2\r\n$-1\r\n", "invalid bulk length"},
			{"*2\r\n$99999999999\r\n", "invalid bulk length"},
			{"*2\r\n$600000000\r\n", "invalid bulk length"},
			{"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$-5\r\n", "invalid bulk length"},
			{"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2\r\nabc\r\n", "longer than its header"},
			{"*1\r\n$2000\r\n", "too long"},
			{"*2\r\n$3\r\nGET\r\n$100000000\r\n", "too long together"},
			{strings.Repeat("x", 100_000), "too long a line"},
			{"SET a 1\r\n", "of lines only PING"},
			{"\x50\x00\x00\x00\x01", "listen.socket"},
		} {
			c := r.dial(r.unix)
			c.send([]byte(tt.in))
			c.closed(tt.says)
		}
		c := r.dial(r.unix)
		c.do("$-1\r\n", "GET", "a") // nothing of it was stored
		c.send([]byte("*0\r\n*-1\r\n\r\n"))
		c.do("+PONG\r\n", "PING")
		if n := r.server.Stats().Malformed; n != 13 {
			t.Errorf("%d malformed, want 13", n)
		}
	})
}

// Values of all sizes come back as they were, also when they are too large.
func TestValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, resp.Options{})
		for _, addr := range []net.Addr{r.unix, r.tcp} {
			c := r.dial(addr)
			for _, n := range []int{1, 4096, 4097, 16 << 10, 300_000, 8 << 20} {
				v := string(bytes.Repeat([]byte("0123456789abcdefg"), n/17+1)[:n])
				c.do("+OK\r\n", "SET", "a", v)
				c.do(bulk(v), "GET", "a")
			}
		}
		c := r.dial(r.unix)
		c.fails("OOM", "SET", "a", string(make([]byte, 40<<20)))
		c.do(":8388608\r\n", "STRLEN", "a") // the old value is still there
	})
}

// A client that stalls in the middle of a command, or does not read, is given up,
// and the old value stays.
func TestStalledClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = 10 * time.Second
		r := newRig(t, resp.Options{Limits: resp.Limits{StallTimeout: stall}})
		c := r.dial(r.unix)
		c.do("+OK\r\n", "SET", "a", "old")
		slow := r.dial(r.unix)
		slow.send([]byte("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1000000\r\nabc"))
		c.do(bulk("old"), "GET", "a")
		begun := time.Now()
		if slow.closed(""); time.Since(begun) != stall+stall/2 { // the deadline is put off late
			t.Errorf("it is given up after %v", time.Since(begun))
		}
		time.Sleep(2 * stall) // between commands there is time
		c.do(bulk("old"), "GET", "a")

		c.do("+OK\r\n", "SET", "big", strings.Repeat("v", 8<<20))
		deaf := r.dial(r.unix)
		for range 4 {
			deaf.send(encode("GET", "big"))
		}
		const after = stall + 10*time.Millisecond // for which the session itself waits
		time.Sleep(after - 1)
		synctest.Wait()
		if n := r.server.Stats().Connections; n != 2 {
			t.Errorf("%d connections before %v have passed", n, after)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if n := r.server.Stats().Connections; n != 1 {
			t.Errorf("%d connections: a client that does not read is still served", n)
		}
	})
}

func TestConnectionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var here atomic.Int32
		r := newRig(t, resp.Options{Enter: func(net.Conn) (func(), error) {
			if here.Add(1) > 1 {
				return nil, errors.New("one is here")
			}
			return func() { here.Add(-1) }, nil
		}})
		c := r.dial(r.unix)
		c.do("+PONG\r\n", "PING")
		r.dial(r.unix).closed("max number of clients")
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, resp.Options{})
		for r.store.Tiers.Leases.NewOwner() != ledger.Daemon {
		}
		r.dial(r.unix).closed("max number of clients")
	})
}

// A server that stops does not wait for clients that rest, and finishes what
// it is at.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, resp.Options{})
		c := r.dial(r.unix)
		c.do("+PONG\r\n", "PING")
		half := r.dial(r.unix)
		half.send([]byte("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1000000\r\nabc"))
		begun := time.Now()
		r.stop()
		if took := time.Since(begun); took != 0 {
			t.Errorf("stopping took %v", took)
		}
		c.closed("")
	})
}

// What LMCache's multi-process adapter sends: TCP, a password, one key a
// command, and replies to the byte.
func TestLMCacheAdapter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, resp.Options{Settings: resp.Settings{Password: "pw"}})
		const key = "obj-0123456789abcdef0123456789abcdef-0-1"
		whole := strings.Repeat("\xde\xad\xbe\xef", 1<<18)
		for i := range 8 { // its sockets
			c := r.dial(r.tcp)
			value := whole
			if c.slow = i == 0; c.slow {
				value = whole[:20_000]
			}
			c.do("+OK\r\n", "AUTH", "pw")
			c.do(":0\r\n", "EXISTS", key)
			c.do("$-1\r\n", "GET", key)
			c.do("+OK\r\n", "SET", key, value)
			c.do(":1\r\n", "EXISTS", key)
			c.do(bulk(value), "GET", key)
			c.do(":1\r\n", "DEL", key)
			c.do(":0\r\n", "DEL", key)
		}
	})
}

// A reply goes out before the connection waits for its client, also for the rest
// of a command; and a client that sends an empty line is at rest.
func TestRepliesBeforeWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = 50 * time.Second
		r, hasty := newRig(t, resp.Options{}), newRig(t, resp.Options{Limits: resp.Limits{StallTimeout: stall}})
		for _, addr := range []net.Addr{r.unix, r.tcp} {
			for first, then := range map[string]string{"PING\r\n*1\r\n$4\r\nPI": "NG\r\n", "PING\r\nPI": "NG\r\n", "PING\r\n*2\r\n$4\r\nPING\r\n$2\r": "\nhi\r\n"} {
				c := r.dial(addr)
				c.send([]byte(first))
				c.expect("+PONG\r\n")
				c.send([]byte(then))
				if strings.HasSuffix(then, "hi\r\n") {
					c.expect(bulk("hi"))
				} else {
					c.expect("+PONG\r\n")
				}
			}
		}
		for _, addr := range []net.Addr{hasty.unix, hasty.tcp} {
			for _, line := range []string{"\r\n", "*0\r\n", "*-1\r\n"} {
				c := hasty.dial(addr)
				c.send([]byte("PING\r\n" + line))
				c.expect("+PONG\r\n")
				time.Sleep(2 * stall)
				c.do("+PONG\r\n", "PING")
			}
		}
	})
}
