package resp_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/resp"
)

// reply reads one reply: a string, a number, an error, nil, or some of those.
func (c *conn) reply() any {
	c.t.Helper()
	c.wait()
	line, err := c.in.ReadString('\n')
	if err != nil || !strings.HasSuffix(line, "\r\n") {
		c.t.Fatalf("reply %q: %v", line, err)
	}
	kind, rest := line[0], line[1:len(line)-2]
	n, _ := strconv.Atoi(rest)
	switch {
	case kind == '+':
		return rest
	case kind == '-':
		return fmt.Errorf("%s", rest)
	case kind == ':':
		return n
	case n < 0:
		return nil
	case kind == '$':
		b := make([]byte, n+2)
		if _, err := io.ReadFull(c.in, b); err != nil || !bytes.HasSuffix(b, []byte("\r\n")) {
			c.t.Fatalf("a value of %d bytes: %v", n, err)
		}
		return string(b[:n])
	case kind == '*', kind == '%':
		if kind == '%' {
			n *= 2
		}
		all := make([]any, n)
		for i := range all {
			all[i] = c.reply()
		}
		return all
	}
	c.t.Fatalf("reply %q", line)
	return nil
}

func (c *conn) ask(args ...string) any {
	c.t.Helper()
	c.send(encode(args...))
	return c.reply()
}

// left sends a command and wants a number.
func (c *conn) left(want int, args ...string) {
	c.t.Helper()
	if n := c.ask(args...); n != want {
		c.t.Fatalf("%v: %v, want %d", args, n, want)
	}
}

// Every condition and expiry a SET may have, together and in any order.
func TestSetOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, resp.Options{})
		c := r.dial(r.unix)
		const ok, null = "+OK\r\n", "$-1\r\n"
		for _, tt := range []struct {
			args  string
			reply string
			new   bool
			lasts time.Duration // 0: for ever
		}{
			{"", ok, true, 0},
			{"NX", null, false, 0},
			{"XX", ok, true, 0},
			{"EX 100", ok, true, 100 * time.Second},
			{"PX 100000", ok, true, 100 * time.Second},
			{"XX EX 100", ok, true, 100 * time.Second},
			{"EX 100 XX", ok, true, 100 * time.Second},
			{"px 100000 xx", ok, true, 100 * time.Second},
			{"NX EX 100", null, false, 0},
			{"PX 100 NX", null, false, 0},
			{"PX 1600", ok, true, 2 * time.Second},
			{"NX XX", "-ERR syntax error\r\n", false, 0},
			{"XX NX", "-ERR syntax error\r\n", false, 0},
			{"EX 1 PX 1", "-ERR syntax error\r\n", false, 0},
			{"EX", "-ERR syntax error\r\n", false, 0},
			{"NX EX", "-ERR syntax error\r\n", false, 0},
			{"GET", "-ERR syntax error\r\n", false, 0},
			{"EX NX", "-ERR value is not an integer or out of range\r\n", false, 0},
			{"EX 1.5", "-ERR value is not an integer or out of range\r\n", false, 0},
			{"EX 9999999999999999999", "-ERR value is not an integer or out of range\r\n", false, 0},
			{"EX 1000 EXAT 1", "-ERR syntax error\r\n", false, 0},
			{"EX 999999999999999999", "-ERR invalid expire time in 'set' command\r\n", false, 0},
			{"EX -1", "-ERR invalid expire time in 'set' command\r\n", false, 0},
			{"PX 0", "-ERR invalid expire time in 'set' command\r\n", false, 0},
		} {
			c.do(ok, "SET", "a", "old")
			c.do(tt.reply, append([]string{"SET", "a", "new"}, strings.Fields(tt.args)...)...)
			want, left := "old", c.ask("TTL", "a").(int)
			if tt.new {
				want = "new"
			}
			if tt.lasts == 0 && left != -1 || tt.lasts > 0 && left != int(tt.lasts.Seconds()) {
				t.Errorf("SET %s: %d s are left", tt.args, left)
			}
			if got := c.ask("GET", "a"); got != want {
				t.Errorf("SET %s: the value is %v, not %s", tt.args, got, want)
			}
		}
		c.do(null, "SET", "none", "1", "XX", "EX", "100")
		c.do(ok, "SET", "none", "1", "NX", "PX", "100000")
		c.do(bulk("1"), "GET", "none")
	})
}

// What clients ask before they do anything.
func TestHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, resp.Options{Version: "1.2.3"})
		for _, addr := range []net.Addr{r.unix, r.tcp} {
			c := r.dial(addr)
			id := c.ask("CLIENT", "ID").(int)
			want := []any{"server", "redis", "version", "6.0.0", "proto", 2, "id", id, "mode", "standalone", "role", "master", "modules", []any{}}
			for _, args := range [][]string{{"HELLO"}, {"HELLO", "2"}, {"HELLO", "2", "SETNAME", "me"}} {
				if got := fmt.Sprint(c.ask(args...)); got != fmt.Sprint(want) {
					t.Errorf("%v: %s", args, got)
				}
			}
			c.do(bulk("me"), "CLIENT", "GETNAME")
			c.do("+OK\r\n", "CLIENT", "SETNAME", "you")
			long := strings.Repeat("x", 1025)
			c.fails("ERR the name of a client has at most 1024 bytes", "CLIENT", "SETNAME", long)
			c.fails("ERR the name of a client has at most 1024 bytes", "HELLO", "2", "SETNAME", long)
			c.do(bulk("you"), "client", "getname")
			c.do("+OK\r\n", "CLIENT", "SETINFO", "LIB-VER", "5.0.1")
			c.fails("ERR unknown subcommand", "CLIENT", "KILL", "all")
			c.fails("NOPROTO", "HELLO", "4")
			c.fails("ERR Protocol version is not", "HELLO", "x")
			c.fails("ERR Syntax error in HELLO option 'WHAT'", "HELLO", "2", "WHAT")
			c.fails("ERR AUTH", "HELLO", "2", "AUTH", "default", "pw")
			c.do("*0\r\n", "COMMAND", "DOCS")
			c.do("*0\r\n", "COMMAND")
			if n := c.ask("COMMAND", "COUNT").(int); n != 19 {
				t.Errorf("COMMAND COUNT: %d", n)
			}
			c.do("+OK\r\n", "SELECT", "0")
			c.fails("ERR DB index is out of range", "SELECT", "1")
			c.fails("ERR value is not", "SELECT", "x")
			info := c.ask("INFO").(string)
			for _, line := range []string{
				"# Server\r\nredis_version:6.0.0\r\n", "kvstored_version:1.2.3\r\n", "# Clients\r\nconnected_clients:", "loading:0\r\n",
				"# Stats\r\ntotal_connections_received:", "keyspace_hits:0\r\n", "role:master\r\n",
			} {
				if !strings.Contains(info, line) {
					t.Errorf("INFO has no %q:\n%s", line, info)
				}
			}
			const memory = "# Memory\r\nused_memory:1536\r\nmaxmemory:67108864\r\nmaxmemory_policy:lru\r\n\r\n"
			if !strings.Contains(info, memory) || !sameSections(info, c.ask("INFO", "all").(string)) || !sameSections(info, c.ask("INFO", "memory", "Default").(string)) {
				t.Errorf("INFO, without a section and with one that means all:\n%s", info)
			}
			c.do(bulk(memory), "INFO", "MEMORY")
			c.do(bulk(memory+"# Replication\r\nrole:master\r\n\r\n"), "INFO", "replication", "none", "memory")
			c.do(bulk(""), "INFO", "none")
			c.do("+OK\r\n", "QUIT")
			c.closed("")
		}
	})
}

// sameSections compares the headings of two answers to INFO.
func sameSections(a, b string) bool {
	headings := func(info string) (names []string) {
		for line := range strings.Lines(info) {
			if line[0] == '#' {
				names = append(names, line)
			}
		}
		return names
	}
	return slices.Equal(headings(a), headings(b))
}

// A command that fails in the middle of a pipeline is answered in its place, and
// the commands behind it are carried out.
func TestErrorsInAPipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, 8<<20, resp.Options{})
		huge := strings.Repeat("h", 9<<20) // more than one connection may have
		for _, addr := range []net.Addr{r.unix, r.tcp} {
			c := r.dial(addr)
			var in bytes.Buffer
			for _, args := range [][]string{
				{"SET", "a", "1"}, {"NONSENSE", "x", "y"}, {"GET"}, {"GET", "a"}, {"SET", "a", huge}, {"GET", "a"}, {"NONSENSE", huge},
				{"SET", "a", "2", "WHAT"}, {"MSET", "a", "3", "b"}, {"MGET", "a", "b"}, {"NONE"}, {"SET", "b", ""}, {"MSET", "a", "4", "b", huge},
				{"MGET", "a", "b", "c"},
			} {
				in.Write(encode(args...))
			}
			in.WriteString("PING\r\n")
			go func() { _, _ = c.Write(in.Bytes()) }()
			c.expect("+OK\r\n-ERR unknown command 'nonsense'\r\n-ERR wrong number of arguments for 'get' command\r\n" + bulk("1"))
			c.expect("-OOM there is no room for this value now, or all that this connection has under way exceeds its share (0.4 of DRAM, half of it while others are connected)\r\n" + bulk("1"))
			c.expect("-ERR unknown command 'nonsense'\r\n-ERR syntax error\r\n-ERR wrong number of arguments for 'mset' command\r\n")
			c.expect("*2\r\n" + bulk("1") + "$-1\r\n-ERR unknown command 'none'\r\n+OK\r\n")
			c.expect("-OOM there is no room for this value now, or all that this connection has under way exceeds its share (0.4 of DRAM, half of it while others are connected)\r\n")
			c.expect("*3\r\n" + bulk("4") + bulk("") + "$-1\r\n+PONG\r\n") // MSET is not atomic
			c.do(":2\r\n", "DEL", "a", "b")
		}
	})
}

// The largest value there may be, and one byte more.
func TestLargestValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, 256<<20, resp.Options{})
		c := r.dial(r.unix)
		value := strings.Repeat("0123456789abcdefg", 4<<20)[:resp.MaxValue(1)]
		c.do("+OK\r\n", "SET", "a", value)
		c.do(bulk(value), "GET", "a")
		c.do(fmt.Sprintf(":%d\r\n", len(value)), "STRLEN", "a")
		c.fails("ERR the name or the value is too large", "SET", "a", value+"x")
		c.do(fmt.Sprintf(":%d\r\n", len(value)), "STRLEN", "a")
		c.do(":1\r\n", "DEL", "a")
	})
}

// TestManyNames: commands of many names answer as those of single ones do, in one
// piece and byte by byte, also within a transaction.
func TestManyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, resp.Options{})
		c := r.dial(r.unix)
		var names []string
		for i := range 500 {
			names = append(names, fmt.Sprint("name", i))
			if i%3 == 0 {
				c.do("+OK\r\n", "SET", names[i], "x")
			}
		}
		there := (len(names) + 2) / 3
		exists, del := append([]string{"EXISTS"}, names...), append([]string{"DEL"}, names...)
		c.do(fmt.Sprintf(":%d\r\n", there), exists...)
		c.do(fmt.Sprintf(":%d\r\n", 2*there), append(exists, names...)...) // names twice count twice
		slow := r.dial(r.tcp)
		slow.slow = true
		slow.do(fmt.Sprintf(":%d\r\n", there), exists...)
		c.do("+OK\r\n", "MULTI")
		c.do("+QUEUED\r\n", exists...)
		c.do("+QUEUED\r\n", append(del, names...)...) // and are deleted once
		c.do("+QUEUED\r\n", exists...)
		c.do(fmt.Sprintf("*3\r\n:%d\r\n:%d\r\n:0\r\n", there, there), "EXEC")
		c.do(":0\r\n", exists...)
		c.do(":0\r\n", del...)
		for i := range 3 { // the room of a long command is used again
			c.do("+OK\r\n", "SET", names[i], "x")
			c.do(fmt.Sprintf(":%d\r\n", i+1), exists...)
			c.do("$1\r\nx\r\n", "GET", names[i])
		}
		c.do(":1\r\n", "DEL", names[0], names[0], "none")
		c.do(":1\r\n", "EXISTS", names[1], "")
		c.fails("ERR wrong number", "EXISTS")
		c.fails("ERR wrong number", "DEL")
	})
}
