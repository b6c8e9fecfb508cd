package resp

import (
	"context"

	"github.com/kvstored/kvstored/internal/access"
)

// command is one row of the table.
type command struct {
	least, most int           // arguments besides the name; most < 0: any number
	need        access.Rights // of the client, to the values of this front end
	traits      traits
	run         func(c *session, ctx context.Context)
}

// takes reports whether the command takes n arguments.
func (c *command) takes(n int) bool { return n >= c.least && (c.most < 0 || n <= c.most) }

// traits set a command apart from others.
type traits uint8

const (
	// open: it needs no password.
	open traits = 1 << iota
	// parses: its clients can take an error for an answer to anything.
	parses
	// exact: some clients, such as LMCache's multi-process one, read its reply as a fixed
	// number of bytes without a look at them. An error would leave its rest in the stream,
	// and each later reply would be taken for that of the next command.
	exact
	// immediate: a transaction does not queue it.
	immediate
	// second, third and odd: which of its arguments are values.
	second
	third
	odd
)

func (t traits) has(of traits) bool { return t&of != 0 }

// value reports whether argument i is a value.
func (t traits) value(i int) bool {
	return t.has(second) && i == 1 || t.has(third) && i == 2 || t.has(odd) && i%2 == 1
}

// table is every command, by its name in lower case. It is filled in once,
// because COMMAND COUNT looks at it.
var table map[string]*command

func init() {
	table = map[string]*command{
		"ping":    {0, 1, 0, 0, doPing},
		"hello":   {0, -1, 0, open | parses, doHello},
		"auth":    {1, 2, 0, open, doAuth},
		"select":  {1, 1, 0, 0, doSelect},
		"client":  {1, -1, 0, parses, doClient},
		"info":    {0, -1, access.Read, 0, doInfo},
		"command": {0, -1, 0, 0, doCommand},
		"quit":    {0, -1, 0, open | immediate, doQuit},
		"multi":   {0, 0, 0, immediate, doMulti},
		"exec":    {0, 0, 0, immediate, doExec},
		"get":     {1, 1, access.Read, exact, doGet},
		"mget":    {1, -1, access.Read, 0, doMget},
		"strlen":  {1, 1, access.Read, 0, doStrlen},
		"exists":  {1, -1, access.Read, exact, doExists},
		"ttl":     {1, 1, access.Read, 0, doTTL},
		"set":     {2, -1, access.Write, exact | second, doSet},
		"setex":   {3, 3, access.Write, third, doSetex},
		"mset":    {2, -1, access.Write, odd, doMset},
		"del":     {1, -1, access.Write, exact, doDel},
	}
}
