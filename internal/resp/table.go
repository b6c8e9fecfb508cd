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

// exact are the commands whose replies some clients read as so many bytes,
// without a look at what they say: LMCache's multi-process client. An error
// would leave its rest in the stream, and each later reply would be taken for
// that of the next command. parsers are the commands that such a client does not
// send.
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
		"ping":     {0, 1, 0, false, nil, (*session).ping},
		"echo":     {1, 1, 0, false, nil, (*session).echo},
		"hello":    {0, -1, 0, true, nil, (*session).hello},
		"auth":     {1, 2, 0, true, nil, (*session).auth},
		"select":   {1, 1, 0, false, nil, (*session).selectDB},
		"client":   {1, -1, 0, false, nil, (*session).client},
		"info":     {0, -1, access.Read, false, nil, (*session).info},
		"command":  {0, -1, 0, false, nil, (*session).commandCommand},
		"config":   {1, -1, 0, false, nil, (*session).config},
		"quit":     {0, -1, 0, true, nil, (*session).doQuit},
		"reset":    {0, 0, 0, true, nil, (*session).doReset},
		"multi":    {0, 0, 0, false, nil, (*session).multi},
		"exec":     {0, 0, 0, false, nil, (*session).exec},
		"discard":  {0, 0, 0, false, nil, (*session).discard},
		"get":      {1, 1, access.Read, false, nil, (*session).get},
		"set":      {2, 8, access.Write, false, second, (*session).set},
		"setnx":    {2, 2, access.Write, false, second, (*session).setNX},
		"mget":     {1, -1, access.Read, false, nil, (*session).mget},
		"mset":     {2, -1, access.Write, false, odd, (*session).mset},
		"exists":   {1, -1, access.Read, false, nil, (*session).exists},
		"del":      {1, -1, access.Write, false, nil, (*session).del},
		"unlink":   {1, -1, access.Write, false, nil, (*session).del},
		"strlen":   {1, 1, access.Read, false, nil, (*session).strlen},
		"type":     {1, 1, access.Read, false, nil, (*session).typeOf},
		"ttl":      {1, 1, access.Read, false, nil, (*session).ttl},
		"pttl":     {1, 1, access.Read, false, nil, (*session).pttl},
		"expire":   {2, 2, access.Write, false, nil, (*session).expire},
		"pexpire":  {2, 2, access.Write, false, nil, (*session).pexpire},
		"persist":  {1, 1, access.Write, false, nil, (*session).persist},
		"scan":     {1, 7, access.Read, false, nil, (*session).scan},
		"dbsize":   {0, 0, access.Read, false, nil, (*session).dbsize},
		"flushdb":  {0, 1, access.Write | access.Admin, false, nil, (*session).flush},
		"flushall": {0, 1, access.Write | access.Admin, false, nil, (*session).flush},
	}
}
