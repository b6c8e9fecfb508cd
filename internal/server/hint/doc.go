// Package hint reads what clients say about the future of a prompt, and keeps what they have
// said is worth keeping: claims on chunks, each with a priority and an end.
//
// # Owns
//
// The words of hints, in the request_configs of a request ([Read]). The claims, by
// claimant and by chunk, their deadlines, the bytes that they retain, and the counts of
// how they ended. A claim is soft: it says in what order chunks go, and never that one
// stays. The ledgers of the tiers are told the rank of each chunk; see
// ledger.Retain.
//
// # Never does
//
// It evicts nothing, reads no payload and knows no tier. It trusts no size of a client. How
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
// other goes for them.
//
// # Buffers
//
// Hashes that callers pass in are copied.
package hint
