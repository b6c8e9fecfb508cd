package ledger

import (
	"encoding/binary"

	"github.com/kvstored/kvstored/key"
)

// entry is all a ledger knows of one chunk, but for what protects it: 60
// bytes, no pointers.
type entry struct {
	hash  key.Hash
	value packed

	space  uint32 // number in spaces
	next   uint32 // chain of the index
	parent uint32 // entry of the chunk before it; 0 for none or unknown
	kids   uint32 // filling or resident entries whose parent this is
	size   uint32 // payload bytes
	guard  uint32 // number in guards; 0 for an entry that nothing protects

	life    life
	claimed bool // see Claim
	mark    mark
}

// packed is a Value in bytes: words would have every entry aligned to eight.
type packed [16]byte

func pack(v Value) (p packed) {
	binary.NativeEndian.PutUint64(p[:], v.A)
	binary.NativeEndian.PutUint64(p[8:], v.B)
	return p
}

func (p *packed) unpack() Value {
	return Value{binary.NativeEndian.Uint64(p[:]), binary.NativeEndian.Uint64(p[8:])}
}

// life is the state of an entry.
//
//	              Begin                Publish               Evict, Remove
//	unused ──────────────────▶ filling ────────▶ resident ──────────────────▶ gone
//	  │  ▲                      ▲  │                ▲                           │
//	  │  │                Begin │  │ Abort, it      │ Restore, of unused        │ Free, and the
//	  │  │                      │  ▼ has kids       │ or of a hole              ▼ last Unhold
//	  │  │                     hole ◀─────────────────────────────── it has kids │
//	  │  └──── last kid is gone ─┘ ▲                                             │
//	  └─ parent of a new kid ──────┘        unused ◀───────────────── it has none ┘
//
// An aborted entry without kids is unused. Only resident entries are in the
// policy. Filling and resident ones, and those that are gone and held, can be
// protected: see protected. An entry that is gone is found only while it has kids.
type life uint8

const (
	unused   life = iota
	hole          // no bytes: stands for the missing parent of its kids
	filling       // being written by its filler
	resident      // published
	gone          // evicted or removed; its bytes still count until Free and the last Unhold
)

type mark uint16

const (
	dirty      mark = 1 << iota // differs from the tiers below
	publishing                  // in the Publish under way, not yet in the policy
	freed                       // gone, and Free was called
	inQuota                     // in the scope of its space's quota
	cooled                      // see cold
	used                        // touched since it was queued; see interior.go

	fresh = publishing // resident: published to be used at once, and not yet used

	below      mark = 1 << 6  // the first of maxBelow tiers that may have it
	dropBehind mark = 1 << 10 // see DropBehind
	ends       mark = 1 << 11 // a usable prefix ends with it; see Need
	hit        mark = 1 << 12 // the upper four bits count touches
)

// MaxHits is where the count of touches ends.
const MaxHits = 15
