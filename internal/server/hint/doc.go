// Package hint reads the hints of clients about the future of a prompt, and keeps their claims
// on chunks, each with an end.
//
// # Owns
//
// The words of hints, in the request_configs of a request ([Read]). The claims, by
// claimant and by chunk, their deadlines, the bytes that they cover, and the counts of
// how they ended. A claim is soft or hard. A soft one says in what order chunks go, and never
// that one stays; it ends at its end. A hard one, a pin, also holds its chunks in
// DRAM, and ends with its connection. The ledgers of the tiers are told which chunks are
// claimed; see ledger.Claim.
//
// # Never does
//
// It evicts nothing, reads no payload and asks no tier. It trusts no size of a client. How
// an advice is used the policies decide.
//
// # Locks
//
// One mutex, of Claims. The ledgers are told under it, so that the last to change a chunk is the
// last to tell: it comes before every ledger, and no lock of a tier may be held by who
// calls. A long chain is changed in rounds.
//
// # Bounds
//
// Payload bytes by user and in total ([ClaimLimits]), the length of a claim, and the memory of
// the table, to which a claim made again adds nothing: claims beyond are refused, and no
// other goes for them. Holds of hard claims have the class ledger.Pin besides.
//
// # Buffers
//
// Hashes that callers pass in are copied. The references that Pin is given are the table's.
package hint
