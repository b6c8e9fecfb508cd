package tier

import "strconv"

// Place names a tier by its kind. It is also the bit of the index, and of the
// ledgers above it, that says a chunk is there. Which tier is nearer than which
// is the order in which a store is given them.
type Place uint8

// The places a chunk can be. The protocol and the metrics know these three; a
// store takes one more.
const (
	CPU Place = iota
	Disk
	Remote

	Places = 4 // how many there can be
)

var names = [...]string{CPU: "cpu", Disk: "disk", Remote: "remote"}

func (p Place) String() string {
	if int(p) < len(names) {
		return names[p]
	}
	return "tier" + strconv.Itoa(int(p))
}

// MarshalText makes a place a key of a JSON object.
func (p Place) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Set is a set of places.
type Set uint8

// All is every place.
const All Set = 1<<Places - 1

// Of returns the set of one place.
func Of(p Place) Set { return 1 << p }

// Has reports whether p is in s.
func (s Set) Has(p Place) bool { return s&Of(p) != 0 }
