// Package wire is the protocol that clients and the daemon speak over a Unix
// socket: frames, the body of every request, reply and push, codes, and the
// connection that carries them. docs/protocol.md is the same thing in prose
// and tables; testdata/wire holds golden frames that both are tested against.
//
// # Owns
//
// Every message is a struct, in messages.go beside the numbers and their names, with two
// methods, in codec.go. internal/wire/gen prints both files from testdata/wire/schema.json,
// whose notes are the comments. Append appends the encoded body to a slice; Decode reads
// a body into the struct; a method check, by hand, has the rules that no type says. Requests are read strictly:
// a byte too few or too many, an unknown flag or an unknown option that may
// not be ignored is an error that wraps [ErrMalformed]. Replies and pushes may
// grow at their end: unknown fields behind the known ones are passed over.
//
// Numbers (operations, codes, reasons, flags, tags) are only ever added,
// never changed or used again.
//
// # Never does
//
// It knows no tier, no lease and no policy: the server decides whether a request
// makes sense. It starts no goroutine and logs nothing.
//
// # Locks
//
// None. A [Conn] has one reader and one writer at a time; its owner sees to
// that. Messages are plain data.
//
// # Buffers
//
// Append keeps no argument beyond the call. Decode does not copy lists: the
// fields of type [U32s], [Refs], [Slots], [Results], [Chunks], [Pairs],
// [Leftovers] and []byte are views into the body and valid as long as the body
// is, which for a frame read from a Conn is until the next read. Strings are
// copied. A decoder allocates nothing in proportion to a claimed count: the body
// must hold the bytes first.
package wire
