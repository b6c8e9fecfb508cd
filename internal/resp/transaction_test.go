package resp_test

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/resp"
)

const (
	queued    = "+QUEUED\r\n"
	execAbort = "-EXECABORT Transaction discarded because of previous errors.\r\n"
)

func TestTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, resp.Options{})
		big := strings.Repeat("0123456789abcdef", 1<<16)
		for _, addr := range []net.Addr{r.unix, r.tcp} {
			c, other := r.dial(addr), r.dial(addr)
			c.do("+OK\r\n", "SET", "old", "1")
			c.do("+OK\r\n", "MULTI")
			c.do(queued, "SET", "a", big)
			c.do(queued, "GET", "a")
			c.do(queued, "mset", "b", "2", "c", "")
			c.do(queued, "MGET", "b", "none", "c")
			c.do(queued, "SET", "old", "x", "NX")
			c.do(queued, "SET", "old", "2", "WHAT") // only seen when it runs
			c.do(queued, "DEL", "old", "none")
			c.do(queued, "GET", "old")
			c.do(queued, "PING")
			other.do("$-1\r\n", "GET", "a") // nothing has happened yet
			other.do(bulk("1"), "GET", "old")
			c.do("*9\r\n+OK\r\n"+bulk(big)+"+OK\r\n*3\r\n"+bulk("2")+"$-1\r\n"+bulk("")+
				"$-1\r\n-ERR syntax error\r\n:1\r\n$-1\r\n+PONG\r\n", "EXEC")
			other.do(bulk(big), "GET", "a")
			c.do(":3\r\n", "DEL", "a", "b", "c")

			c.do("-ERR EXEC without MULTI\r\n", "EXEC")
			c.do("+OK\r\n", "MULTI")
			c.do("*0\r\n", "EXEC")

			c.do("+OK\r\n", "MULTI") // nested, which breaks nothing
			c.do(queued, "SET", "a", "1")
			c.do("-ERR MULTI calls can not be nested\r\n", "MULTI")
			c.do(queued, "GET", "a")
			c.do("*2\r\n+OK\r\n"+bulk("1"), "EXEC")

			c.do(bulk("1"), "GET", "a")
			c.do("+OK\r\n", "MULTI")
			c.do(queued, "DEL", "a")
			c.do("+OK\r\n", "QUIT")
			c.closed("")
			other.do(":1\r\n", "DEL", "a")
		}
		if st := r.server.Stats(); st.Stored != 2*5 {
			t.Errorf("%d values were stored, not 10", st.Stored)
		}
	})
}

// A command that is refused while others are queued takes them all with it.
func TestBrokenTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, resp.Options{Limits: resp.Limits{ArgBytes: 1 << 16}})
		c := r.dial(r.unix)
		for _, tt := range []struct {
			says string
			args []string
		}{
			{"ERR unknown command 'nonsense'", []string{"NONSENSE", "a", "b"}},
			{"ERR wrong number of arguments for 'get' command", []string{"GET"}},
			{"ERR wrong number of arguments for 'exec' command", []string{"EXEC", "now"}},
			{"ERR the name or the value is too large", []string{"SET", strings.Repeat("n", 17<<10), "v"}},
			{"ERR the commands of a transaction are too long together", append([]string{"DEL"}, make([]string, 2100)...)},
		} {
			c.do("+OK\r\n", "MULTI")
			c.do(queued, "SET", "a", "1")
			c.fails(tt.says, tt.args...)
			c.do(queued, "SET", "b", "1")
			c.do(execAbort, "EXEC")
			c.do(":0\r\n", "EXISTS", "a", "b")
		}
		c.do("+OK\r\n", "MULTI")
		c.fails("ERR unknown command", "DISCARD")
		c.do(execAbort, "EXEC")
		c.do("+OK\r\n", "MULTI") // what was broken is forgotten
		c.do(queued, "PING")
		c.do("*1\r\n+PONG\r\n", "EXEC")
	})
}

// Queued values count against the client's share until they are stored or given
// up, by an error or the end of the connection.
func TestTransactionHoldsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, resp.Options{}) // 32 MiB of its DRAM may be leased
		value := strings.Repeat("v", 10<<20)
		c := r.dial(r.unix)
		fill := func() {
			t.Helper()
			c.do("+OK\r\n", "MULTI")
			for _, name := range []string{"a", "b", "c"} {
				c.do(queued, "SET", name, value)
			}
		}
		free := func() {
			t.Helper()
			c.do(":0\r\n", "EXISTS", "a", "b", "c", "d")
		}
		for range 2 {
			fill()
			c.fails("OOM", "SET", "d", value)
			c.do(queued, "SET", "d", value) // there is room again, and no use for it
			c.do(execAbort, "EXEC")
			free()
		}
		fill()
		c.do("*3\r\n+OK\r\n+OK\r\n+OK\r\n", "EXEC")
		c.do(":3\r\n", "DEL", "a", "b", "c")
		fill()
		_ = c.Close() // the rig looks whether anything is left
	})
}

// A client that stalls in a transaction is closed as one in a command, for it
// holds as much; one that has ended its transaction may rest.
func TestStalledTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = 30 * time.Second
		r := newRig(t, resp.Options{Limits: resp.Limits{StallTimeout: stall}})
		c, other := r.dial(r.unix), r.dial(r.unix)
		c.send(bytes.Join([][]byte{encode("MULTI"), encode("SET", "a", "1")}, nil))
		other.send(bytes.Join([][]byte{encode("MULTI"), encode("SET", "b", "1"), encode("EXEC")}, nil))
		other.expect("+OK\r\n" + queued + "*1\r\n+OK\r\n")
		c.expect("+OK\r\n" + queued)
		begun := time.Now()
		if c.closed(""); time.Since(begun) != stall+stall/2 { // the deadline is put off late
			t.Errorf("it is closed after %v", time.Since(begun))
		}
		time.Sleep(2 * stall)
		other.do("$-1\r\n", "GET", "a")
		other.do(bulk("1"), "GET", "b")
	})
}
