package tier

// Place names a tier by what it is, nearest first. It is also the bit of the
// index that says a chunk is there.
type Place uint8

// The places a chunk can be.
const (
	CPU Place = iota
	Disk
	Remote
	Places // how many there are
)

func (p Place) String() string {
	return [...]string{"cpu", "disk", "remote"}[p]
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

// nearest is the first place in s; ok is false for the empty set.
func (s Set) nearest() (p Place, ok bool) {
	for p = CPU; p < Places; p++ {
		if s.Has(p) {
			return p, true
		}
	}
	return 0, false
}
