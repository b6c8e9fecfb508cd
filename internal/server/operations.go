package server

import (
	"sync"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/wire"
)

// operation is what the server knows of one operation of the protocol.
type operation struct {
	handle handler       // nil: there is none
	rights access.Rights // that it takes
	scope  scope         // where it takes them
	// holds says that it makes a connection an owner: one that only asks for
	// statistics must not halve what the others may hold.
	holds bool
}

// handler answers a request with a message. Without one it has answered already, or a
// goroutine will.
type handler func(c *reader, h wire.Header, body []byte) (wire.Message, error)

// on is the handler that decodes a request for do.
func on[T any, P interface {
	*T
	wire.Message
}](do func(c *reader, h wire.Header, req T) (wire.Message, error)) handler {
	spare := sync.Pool{New: func() any { return new(T) }} // what Decode fills in would be allocated for each request
	return func(c *reader, h wire.Header, body []byte) (wire.Message, error) {
		into := spare.Get().(*T)
		err := P(into).Decode(body)
		req := *into
		*into = *new(T) // it has views into the body
		spare.Put(into)
		if err != nil {
			return nil, err
		}
		return do(c, h, req)
	}
}

// operations is every operation of a greeted client, by its code.
var operations = [1 << 8]operation{
	wire.OpHello:     {handleHelloAgain, 0, somewhere, false},
	wire.OpOpenSpace: {on(handleOpenSpace), 0, somewhere, false},
	wire.OpPing:      {on(handlePing), 0, somewhere, false},
	wire.OpCancel:    {on(handleCancel), 0, somewhere, false},
	wire.OpRenew:     {on(handleRenew), 0, somewhere, false},

	wire.OpLookup:   {on(handleLookup), access.Read, inSpaces, false},
	wire.OpPrefetch: {on(handlePrefetch), access.Read, inSpaces, true},
	wire.OpBatch:    {on(handleBatch), access.Read, inSpaces, true},
	wire.OpGet:      {on(handleGet), access.Read, inSpaces, true},
	wire.OpWarm:     {on(handleWarm), access.Read, inSpaces, false},
	wire.OpHint:     {on(handleHint), access.Read, inSpaces, false},
	wire.OpPin:      {on(handlePin), access.Read, inSpaces, true},
	wire.OpWait:     {on(handleWait), access.Read, somewhere, false},
	wire.OpRelease:  {on(handleRelease), access.Read, somewhere, false},
	wire.OpUnpin:    {on(handleUnpin), access.Read, somewhere, false},
	wire.OpEvents:   {on(handleEvents), access.Read, somewhere, false},
	wire.OpStats:    {on(handleStats), access.Read, everywhere, false},

	wire.OpReserve: {on(handleReserve), access.Write, inSpaces, true},
	wire.OpCommit:  {on(handleCommit), access.Write, inSpaces, false},
	wire.OpPut:     {on(handlePut), access.Write, inSpaces, true},
	wire.OpDelete:  {on(handleDelete), access.Write, inSpaces, false},
	wire.OpAbort:   {on(handleAbort), access.Write, somewhere, false},
	wire.OpFlush:   {on(handleFlush), access.Write, somewhere, false},
}
