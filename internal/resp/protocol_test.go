package resp_test

import (
	"fmt"
	"strings"
	"testing"
)

// greeted is the reply to HELLO.
func greeted(version, id int) string {
	head := "*14\r\n"
	if version == 3 {
		head = "%7\r\n"
	}
	return head + bulk("server") + bulk("redis") + bulk("version") + bulk("6.0.0") + fmt.Sprintf("%s:%d\r\n%s:%d\r\n", bulk("proto"), version, bulk("id"), id) +
		bulk("mode") + bulk("standalone") + bulk("role") + bulk("master") + bulk("modules") + "*0\r\n"
}

// nulls has the null of each version.
var nulls = map[int]string{2: "$-1\r\n", 3: "_\r\n"}

const (
	replication   = "# Replication\r\nrole:master\r\n\r\n"
	unknownClient = "-ERR unknown subcommand or wrong number of arguments for 'client'\r\n"
)

// asVerbatim is a text in RESP3.
func asVerbatim(s string) string { return fmt.Sprintf("=%d\r\ntxt:%s\r\n", len(s)+4, s) }

// protocolRows are asked one after the other.
var protocolRows = []struct{ command, two, three string }{ // three is "" where it is two
	{"PING", "+PONG\r\n", ""},
	{"PING hi", bulk("hi"), ""},
	{"SELECT 0", "+OK\r\n", ""},
	{"AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled.\r\n", ""},
	{"COMMAND", "*0\r\n", ""},
	{"COMMAND COUNT", ":19\r\n", ""},
	{"COMMAND DOCS", "*0\r\n", "%0\r\n"},
	{"COMMAND LIST", "*0\r\n", ""},
	{"INFO replication", bulk(replication), asVerbatim(replication)},
	{"INFO none", bulk(""), asVerbatim("")},
	{"CLIENT GETNAME", bulk(""), "_\r\n"},
	{"CLIENT SETNAME me", "+OK\r\n", ""},
	{"CLIENT GETNAME", bulk("me"), ""},
	{"CLIENT SETINFO LIB-NAME x", "+OK\r\n", ""},
	{"CLIENT MAINT_NOTIFICATIONS ON", unknownClient, ""},
	{"GET none", "$-1\r\n", "_\r\n"},
	{"SET a 1", "+OK\r\n", ""},
	{"SET a 2 NX", "$-1\r\n", "_\r\n"},
	{"SET none 2 XX", "$-1\r\n", "_\r\n"},
	{"GET a", bulk("1"), ""},
	{"MSET b 2 c 3", "+OK\r\n", ""},
	{"MGET b none c", "*3\r\n" + bulk("2") + "$-1\r\n" + bulk("3"), "*3\r\n" + bulk("2") + "_\r\n" + bulk("3")},
	{"STRLEN none", ":0\r\n", ""},
	{"EXISTS a b none", ":2\r\n", ""},
	{"TTL none", ":-2\r\n", ""},
	{"SETEX a 200 1", "+OK\r\n", ""},
	{"TTL a", ":200\r\n", ""},
	{"DEL b none", ":1\r\n", ""},
	{"NONSENSE", "-ERR unknown command 'nonsense'\r\n", ""},
	{"MULTI", "+OK\r\n", ""},
	{"GET none", "+QUEUED\r\n", ""},
	{"INFO none", "+QUEUED\r\n", ""},
	{"CLIENT NONSENSE", "+QUEUED\r\n", ""},
	{"EXEC", "*3\r\n$-1\r\n" + bulk("") + unknownClient, "*3\r\n_\r\n" + asVerbatim("") + unknownClient},
	{"MULTI", "+OK\r\n", ""},
	{"GET", "-ERR wrong number of arguments for 'get' command\r\n", ""},
	{"EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n", ""},
	{"HELLO", greeted(2, 1), greeted(3, 1)},
	{"QUIT", "+OK\r\n", ""},
}

// TestProtocols has the replies of every command in both versions.
func TestProtocols(t *testing.T) {
	names := map[string]bool{}
	for _, version := range []int{2, 3} {
		inBubble(t, func(t *testing.T, p *pipes) {
			c := p.dial("unix")
			if version == 3 {
				c.do(greeted(3, 1), "HELLO", "3")
			}
			for _, row := range protocolRows {
				args, want := strings.Fields(row.command), row.two
				if names[args[0]] = true; version == 3 && row.three != "" {
					want = row.three
				}
				c.send(string(encode(args...)))
				if got := c.rest(); got != want {
					t.Errorf("RESP%d, %s: %q, want %q", version, row.command, got, want)
				}
			}
		})
	}
	if delete(names, "NONSENSE"); len(names) != 19 { // as COMMAND COUNT says
		t.Errorf("%d commands of 19 are asked", len(names))
	}
}

// TestHelloChangesTheVersion: of its own connection, from the reply on, and back.
func TestHelloChangesTheVersion(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pipes) {
		c, other := p.dial("unix"), p.dial("unix")
		c.do(nulls[2], "GET", "a")
		for _, version := range []int{3, 3, 2, 3} {
			c.do(greeted(version, 1), "HELLO", fmt.Sprint(version))
			c.do(nulls[version], "GET", "a")
			c.do(greeted(version, 1), "hello") // only tells
			c.do(nulls[version], "GET", "a")
			other.do(nulls[2], "GET", "a")
		}
		c.do(greeted(2, 1), "HELLO", "2", "sEtNaMe", "me", "AUTH", "default", "secret", "setname", "you")
		c.do(bulk("you"), "CLIENT", "GETNAME")
		c.do(greeted(3, 1), "HELLO", "3", "SETNAME", "")
		c.do(nulls[3], "CLIENT", "GETNAME")
		c.do(greeted(2, 1), "HELLO", "2")
		c.do("+OK\r\n", "MULTI") // in a transaction it is queued as others are
		for _, args := range [][]string{{"HELLO", "3"}, {"GET", "a"}, {"HELLO", "2"}, {"GET", "a"}, {"HELLO", "3"}} {
			c.do(queued, args...)
		}
		c.do("*5\r\n"+greeted(3, 1)+nulls[3]+greeted(2, 1)+nulls[2]+greeted(3, 1), "EXEC")
		c.do(nulls[3], "GET", "a")
		c.silent()
		other.silent()
	})
}

const (
	noVersion = "-ERR Protocol version is not an integer or out of range\r\n"
	noProto   = "-NOPROTO unsupported protocol version\r\n"
	wrongPass = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
	tooLong   = "-ERR the name of a client has at most 1024 bytes\r\n"
)

// refusal is a HELLO that is refused, and the error.
type refusal struct {
	says string
	args []string
}

// refusals ask for another version than the one there is.
func refusals(to string) []refusal {
	syntax := func(option string) string { return "-ERR Syntax error in HELLO option '" + option + "'\r\n" }
	return []refusal{
		{noVersion, []string{"abc"}},
		{noVersion, []string{""}},
		{noVersion, []string{"99999999999999999999"}},
		{noVersion, []string{"0" + to}},
		{noVersion, []string{"+" + to}},
		{noVersion, []string{" " + to}},
		{noVersion, []string{to + ".0"}},
		{noVersion, []string{"AUTH", "default", "secret"}},
		{noVersion, []string{"SETNAME", "other"}},
		{noProto, []string{"4"}},
		{noProto, []string{"1"}},
		{noProto, []string{"-3"}},
		{noProto, []string{"9223372036854775807", "AUTH", "default", "secret"}},
		{syntax("AUTH"), []string{to, "AUTH"}},
		{syntax("auth"), []string{to, "auth", "default"}},
		{syntax("SETNAME"), []string{to, "SETNAME"}},
		{syntax(""), []string{to, ""}},
		{syntax("WHAT"), []string{to, "SETNAME", "other", "AUTH", "default", "secret", "WHAT"}},
		{syntax("a??b"), []string{to, "a\r\nb"}},
		{syntax(strings.Repeat("x", 64)), []string{to, strings.Repeat("x", 1000)}},
		{tooLong, []string{to, "SETNAME", strings.Repeat("x", 1025)}},
		{wrongPass, []string{to, "SETNAME", "other", "AUTH", "default", "wrong"}},
		{wrongPass, []string{to, "AUTH", "", "secret"}},
		{wrongPass, []string{to, "AUTH", "default", ""}},
		{wrongPass, []string{to, "AUTH", "default", "secret", "AUTH", "default", "wrong"}}, // the last one counts
	}
}

// TestHelloRefused: a wrong HELLO gets the error of Redis, and changes neither the version
// nor the name nor the login.
func TestHelloRefused(t *testing.T) {
	for _, version := range []int{2, 3} {
		to := fmt.Sprint(5 - version)
		inBubble(t, func(t *testing.T, p *pipes) {
			for _, row := range refusals(to) {
				c := p.dial("unix")
				c.do(greeted(version, len(p.conns)), "HELLO", fmt.Sprint(version), "SETNAME", "me")
				c.do(row.says, append([]string{"HELLO"}, row.args...)...)
				c.do(nulls[version], "GET", "none")
				c.do(bulk("me"), "CLIENT", "GETNAME")
				c.silent()
				if len(row.says+strings.Join(row.args, "")) > 1000 {
					continue // more than a client may send that is not logged in
				}
				c = p.dial("tcp")
				c.do(row.says, append([]string{"HELLO"}, row.args...)...)
				c.do("-NOAUTH Authentication required.\r\n", "GET", "none")
				c.do("+OK\r\n", "AUTH", "secret")
				c.do(nulls[2], "GET", "none")
				c.do(bulk(""), "CLIENT", "GETNAME")
				c.silent()
			}
			c := p.dial("tcp")
			c.send(string(encode("HELLO", "3", "SETNAME", "me")))
			if got := c.rest(); !strings.HasPrefix(got, "-NOAUTH HELLO must be called") {
				t.Errorf("HELLO without a password: %q", got)
			}
			c.do(greeted(2, len(p.conns)), "HELLO", "2", "AUTH", "default", "secret")
			c.do(bulk(""), "CLIENT", "GETNAME")
		})
	}
}

// TestUnknownClientSubcommands: each is an error in its place in a pipeline, and the commands
// behind it are answered. No subcommand has the server push replies.
func TestUnknownClientSubcommands(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pipes) {
		for _, version := range []int{2, 3} {
			c, other := p.dial("unix"), p.dial("unix")
			c.do(greeted(version, len(p.conns)-1), "HELLO", fmt.Sprint(version))
			var in, out strings.Builder
			for _, args := range []string{
				"TRACKING ON", "TRACKING ON BCAST NOLOOP", "MAINT_NOTIFICATIONS ON moving-endpoint-type internal-ip", "maint_notifications off", "LIST", "INFO", "KILL x",
				"REPLY OFF", "PAUSE 1000", "CACHING YES", "NONSENSE", "SETNAME", "SETINFO LIB-NAME", "NO-EVICT",
			} {
				in.Write(encode(append([]string{"CLIENT"}, strings.Fields(args)...)...))
				in.Write(encode("GET", "a"))
				out.WriteString(unknownClient + nulls[version])
			}
			in.Write(encode("CLIENT", ""))
			in.Write(encode("CLIENT"))
			in.Write(encode("SUBSCRIBE", "x"))
			in.Write(encode("PING"))
			c.send(in.String())
			c.expect(out.String() + unknownClient + "-ERR wrong number of arguments for 'client' command\r\n-ERR unknown command 'subscribe'\r\n+PONG\r\n")
			other.do("+OK\r\n", "SET", "a", "1")
			other.do(":1\r\n", "DEL", "a")
			c.silent()
		}
	})
}
