// Package handover is how one process goes on where another one ends: the steps of it,
// and the descriptors that pass between the two, over a Unix socket.
//
//	successor                         predecessor
//	  hello      ─────────────────▶
//	             ◀─────────────────   offer, with the arena and the listening sockets
//	  ready      ─────────────────▶     it maps the arena; the predecessor still serves
//	             ◀─────────────────   yours, with the directory of DRAM; it serves no more
//	  prepared   ─────────────────▶     everything is made; nothing was changed yet
//	             ◀─────────────────   go: the one moment that decides
//	  serving    ─────────────────▶     before it accepts or changes anything
//
// Up to go the predecessor may take everything back, for any reason, and the
// successor changes nothing. From then on it is the successor's, unless that has ended
// before it said serving.
//
// # Owns
//
// The messages, their version and bounds, and who may be at the other end: a process of
// this user, or root's.
//
// # Never does
//
// It decides nothing, and does not know what the descriptors are of.
//
// # Locks and buffers
//
// None. A Conn is used by one goroutine.
package handover
