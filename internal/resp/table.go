package resp

import (
	"context"

	"github.com/kvstored/kvstored/internal/access"
)

// command is one row of the table.
type command struct {
	least, most int           // arguments besides the name; most < 0: any number
	need        access.Rights // of the client, to the values of this front end
	open        bool
	value       func(i int) bool // which arguments are values; nil: none
	run         func(c *session, ctx context.Context)
}

// takes reports whether the command takes n arguments.
func (c *command) takes(n int) bool { return n >= c.least && (c.most < 0 || n <= c.most) }

// exact are the commands whose replies some clients, such as LMCache's
// multi-process one, read as a fixed number of bytes without a look at them. An
// error would leave its rest in the stream, and each later reply would be taken
// for that of the next command. parsers are the commands that such a client does
// not send.
var (
	exact   = map[string]bool{"get": true, "set": true, "exists": true, "del": true}
	parsers = map[string]bool{"hello": true, "client": true}
)

// table is every command, by its name in lower case. It is filled in once,
// because COMMAND COUNT looks at it.
var table map[string]command

func init() {
	second := func(i int) bool { return i == 1 }
	odd := func(i int) bool { return i%2 == 1 }
	table = map[string]command{
		"ping":     {0, 1, 0, false, nil, doPing},
		"echo":     {1, 1, 0, false, nil, doEcho},
		"hello":    {0, -1, 0, true, nil, doHello},
		"auth":     {1, 2, 0, true, nil, doAuth},
		"select":   {1, 1, 0, false, nil, doSelect},
		"client":   {1, -1, 0, false, nil, doClient},
		"info":     {0, -1, access.Read, false, nil, doInfo},
		"command":  {0, -1, 0, false, nil, doCommand},
		"config":   {1, -1, 0, false, nil, doConfig},
		"quit":     {0, -1, 0, true, nil, doQuit},
		"reset":    {0, 0, 0, true, nil, doReset},
		"multi":    {0, 0, 0, false, nil, doMulti},
		"exec":     {0, 0, 0, false, nil, doExec},
		"discard":  {0, 0, 0, false, nil, doDiscard},
		"get":      {1, 1, access.Read, false, nil, doGet},
		"set":      {2, 8, access.Write, false, second, doSet},
		"setnx":    {2, 2, access.Write, false, second, doSetNX},
		"mget":     {1, -1, access.Read, false, nil, doMget},
		"mset":     {2, -1, access.Write, false, odd, doMset},
		"exists":   {1, -1, access.Read, false, nil, doExists},
		"del":      {1, -1, access.Write, false, nil, doDel},
		"unlink":   {1, -1, access.Write, false, nil, doDel},
		"strlen":   {1, 1, access.Read, false, nil, doStrlen},
		"type":     {1, 1, access.Read, false, nil, doType},
		"ttl":      {1, 1, access.Read, false, nil, doTTL},
		"pttl":     {1, 1, access.Read, false, nil, doPTTL},
		"expire":   {2, 2, access.Write, false, nil, doExpire},
		"pexpire":  {2, 2, access.Write, false, nil, doPexpire},
		"persist":  {1, 1, access.Write, false, nil, doPersist},
		"scan":     {1, 7, access.Read, false, nil, doScan},
		"dbsize":   {0, 0, access.Read, false, nil, doDBSize},
		"flushdb":  {0, 1, access.Write | access.Admin, false, nil, doFlush},
		"flushall": {0, 1, access.Write | access.Admin, false, nil, doFlush},
	}
}
