package index

import "errors"

// Errors of this package. Each call wraps them with its arguments;
// [errors.Is] tells them apart. A call that fails has changed nothing, unless
// its comment says otherwise.
var (
	ErrBlockTokens    = errors.New("wrong number of tokens in a block")
	ErrGroup          = errors.New("wrong group")
	ErrMedium         = errors.New("unknown medium")
	ErrTooManyBlocks  = errors.New("too many blocks in one event")
	ErrCount          = errors.New("numbers of hashes and tokens do not fit")
	ErrUnknownParent  = errors.New("unknown parent block")
	ErrParent         = errors.New("block stands below another parent")
	ErrAlias          = errors.New("hash of the engine names another block")
	ErrNoHash         = errors.New("shard has no way to hash tokens")
	ErrUnknownShard   = errors.New("unknown shard")
	ErrUnknownModel   = errors.New("unknown model")
	ErrShardExists    = errors.New("shard exists")
	ErrTooManyShards  = errors.New("too many shards")
	ErrFull           = errors.New("shard is full")
	ErrDropped        = errors.New("shard was dropped")
	ErrUnknownWorker  = errors.New("unknown worker")
	ErrWorkerExists   = errors.New("worker is registered twice")
	ErrTooManyWorkers = errors.New("too many workers")
	ErrWorkerName     = errors.New("worker has no id or too long a one")
	ErrOption         = errors.New("option out of range")
)
