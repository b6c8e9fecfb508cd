package resp

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// greeting is the request of a HELLO. Nil fields change nothing.
type greeting struct {
	speaks         protocol // 0: as before
	user, password []byte
	name           []byte
}

// doHello answers HELLO [2|3 [AUTH user password] [SETNAME name]]. A HELLO that fails
// has changed nothing.
func doHello(c *session, _ context.Context) {
	g, wrong := readGreeting(c.args)
	switch {
	case wrong != "":
		c.fail("%s", wrong)
		return
	case g.user != nil && !c.login(string(g.user), g.password):
		return
	case !c.known:
		c.fail("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
		return
	}
	if g.name != nil {
		c.name = string(g.name)
	}
	if g.speaks != 0 {
		c.out.speaks = g.speaks
	}
	c.greet()
}

// greet answers HELLO.
func (c *session) greet() {
	c.out.pairs(7)
	c.out.text("server")
	c.out.text("redis")
	c.out.text("version")
	c.out.text(redisVersion)
	c.out.text("proto")
	c.out.integer(int64(c.out.speaks))
	c.out.text("id")
	c.out.integer(c.id)
	c.out.text("mode")
	c.out.text("standalone")
	c.out.text("role")
	c.out.text("master")
	c.out.text("modules")
	c.out.array(0)
}

// readGreeting reads the arguments of HELLO. Wrong ones have an error reply.
func readGreeting(args [][]byte) (g greeting, wrong string) {
	if len(args) == 0 {
		return g, ""
	}
	if g.speaks, wrong = readProtocol(string(args[0])); wrong != "" {
		return g, wrong
	}
	for rest := args[1:]; len(rest) > 0; {
		switch option := strings.ToLower(string(rest[0])); {
		case option == "auth" && len(rest) >= 3:
			g.user, g.password = rest[1], rest[2]
			rest = rest[3:]
		case option == "setname" && len(rest) >= 2:
			if g.name = rest[1]; len(g.name) > maxShy {
				return g, nameTooLong
			}
			rest = rest[2:]
		default:
			return g, fmt.Sprintf("ERR Syntax error in HELLO option '%.64s'", strings.Map(printable, string(rest[0])))
		}
	}
	return g, ""
}

// readProtocol reads a number as Redis does: in one spelling only.
func readProtocol(arg string) (p protocol, wrong string) {
	n, err := strconv.ParseInt(arg, 10, 64)
	switch {
	case err != nil || strconv.FormatInt(n, 10) != arg:
		return 0, "ERR Protocol version is not an integer or out of range"
	case n != int64(resp2) && n != int64(resp3):
		return 0, "NOPROTO unsupported protocol version"
	}
	return protocol(n), ""
}
