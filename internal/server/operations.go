package server

import (
	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/wire"
)

// operation is what the server knows of one operation of the protocol.
type operation struct {
	handle func(c *reader, h wire.Header, body []byte) error // nil: there is none
	rights access.Rights                                     // that it takes
	scope  scope                                             // where it takes them
	// holds says that it makes a connection an owner: one that only asks for
	// statistics must not halve what the others may hold.
	holds bool
}

// operations is every operation of a greeted client, by its code.
var operations = [1 << 8]operation{
	wire.OpHello:     {handleHelloAgain, 0, somewhere, false},
	wire.OpOpenSpace: {handleOpenSpace, 0, somewhere, false},
	wire.OpPing:      {handlePing, 0, somewhere, false},
	wire.OpCancel:    {handleCancel, 0, somewhere, false},
	wire.OpRenew:     {handleRenew, 0, somewhere, false},

	wire.OpLookup:   {handleLookup, access.Read, inSpaces, false},
	wire.OpPrefetch: {handlePrefetch, access.Read, inSpaces, true},
	wire.OpBatch:    {handleBatch, access.Read, inSpaces, true},
	wire.OpGet:      {handleGet, access.Read, inSpaces, true},
	wire.OpWarm:     {handleWarm, access.Read, inSpaces, false},
	wire.OpHint:     {handleHint, access.Read, inSpaces, false},
	wire.OpPin:      {handlePin, access.Read, inSpaces, true},
	wire.OpWait:     {handleWait, access.Read, somewhere, false},
	wire.OpRelease:  {handleRelease, access.Read, somewhere, false},
	wire.OpUnpin:    {handleUnpin, access.Read, somewhere, false},
	wire.OpEvents:   {handleEvents, access.Read, somewhere, false},
	wire.OpStats:    {handleStats, access.Read, everywhere, false},

	wire.OpReserve: {handleReserve, access.Write, inSpaces, true},
	wire.OpCommit:  {handleCommit, access.Write, inSpaces, false},
	wire.OpPut:     {handlePut, access.Write, inSpaces, true},
	wire.OpDelete:  {handleDelete, access.Write, inSpaces, false},
	wire.OpAbort:   {handleAbort, access.Write, somewhere, false},
	wire.OpFlush:   {handleFlush, access.Write, somewhere, false},
}
