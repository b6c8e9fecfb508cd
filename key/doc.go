// Package key names chunks: it turns a prompt into the keys of its chunks and
// says which payloads are exchangeable at all.
//
// # Owns
//
// A [Space] is everything that must be equal for two payloads to be
// exchangeable; its [SpaceID] is the digest of its canonical form. A [Builder]
// turns token ids, or the hashes an engine computed itself, into a [Chain]. A
// [Key] is the space and the hash of one chunk.
//
// Everything here is deterministic across processes, machines and languages.
// The byte layouts below are frozen: a change is a new domain string, never
// an edit. testdata/vectors.json holds examples, testdata/vectors.py the
// same computation in another language.
//
// # Notation
//
//	u32(x)   x as 4 bytes, little-endian
//	str(x)   u32(length of x in bytes), then the UTF-8 bytes of x
//	a ‖ b    a followed by b
//	h[:16]   the first 16 bytes of h
//
// # Canonical form of a space
//
//	"kvstored-space-1"      16 bytes: domain and version
//	str(model)
//	str(revision)
//	str(lora)
//	u32(world)
//	u32(worker)
//	str(dtype)
//	u32(chunk tokens)
//	str(method)
//	str(group)
//	str(salt digest)        empty without a salt, else 16 bytes
//	u32(number of tags)
//	str(name) ‖ str(value)  for each tag, in byte order of the names
//
//	salt digest = SHA-256("kvstored-salt-01" ‖ salt)[:16]
//	space id    = SHA-256(canonical form)[:16]
//
// The digest stands in for the salt so that a space can be written down,
// stored and parsed again without giving the salt away. It hides a salt only
// as well as that salt resists guessing: use a random one.
//
// # Chain hashes
//
//	seed = SHA-256("kvstored-chain-1" ‖ str(method) ‖ u32(chunk tokens) ‖ str(salt))[:16]
//	in_i = previous ‖ u32(token) for each token of chunk i
//
// where previous is the hash of chunk i-1, and the seed for the first chunk.
//
//	sha256   H_i = SHA-256(in_i)[:16]
//	xxh64    H_i = XXH64(in_i, seed a) ‖ XXH64(in_i, seed b)
//
// XXH64 results are in their canonical, big-endian representation; seed a and
// seed b are the first and the last 8 bytes of the chain seed as little-endian
// integers. The seed depends on method, chunk tokens and salt only, so that
// one chain serves all ranks and adapters of a model.
//
// Given hashes of 16 bytes are taken as they are, of 32 bytes their first 16,
// and 8 bytes are followed by 8 zero bytes. The all-zero hash is reserved: as
// a parent it stands for the root.
//
// # Never does
//
// It knows no tier, does no I/O and starts no goroutine.
//
// # Locks
//
// None: values are plain data, and a Builder belongs to one goroutine at a time.
//
// # Buffers
//
// It keeps no caller's buffer beyond the call. A Builder writes into the Chain
// that its caller passes, and reuses the memory of that.
package key
