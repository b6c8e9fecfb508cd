// Package event decodes what inference engines publish about their KV caches:
// batches of events in msgpack, as vLLM and SGLang send them. It knows all forms
// that were in use up to autumn 2026: arrays and maps, at both levels, with the
// fields that came and went.
//
//	batch   [time, [event, ...], rank]     or a map of ts, events, data_parallel_rank
//	event   ["BlockStored", hashes, parent, tokens, block size, ...]
//	        or a map of type, block_hashes, parent_block_hash, token_ids, ...
//
// An array of the two engines differs behind the medium, so the caller says
// which it is; maps say it themselves. Fields and kinds of events that
// are not known are passed over.
//
// It owns nothing: no connection, goroutine or lock. Input is bounded by
// [Limits], memory by the size of the input, nesting by a constant. An error
// names the event and the field; the batch is then refused whole, so that the
// caller asks for it again or starts anew, and never has half of it.
package event
