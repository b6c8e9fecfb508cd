package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size. It is written as a whole number with a unit, binary (KiB,
// MiB, GiB, TiB) or decimal (KB, MB, GB, TB), or as a plain number of bytes.
type Bytes int64

// sizeUnits is in the order in which String tries them: a size is printed in
// the largest binary unit that divides it, else in the largest decimal one.
var sizeUnits = []struct {
	name string
	n    int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3},
}

// ParseBytes is the inverse of String. It refuses fractions and units that
// leave open which power is meant.
func ParseBytes(s string) (Bytes, error) {
	digits, unit := s, int64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			digits, unit = rest, u.n
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n > uint64(math.MaxInt64/unit) {
		return 0, fmt.Errorf("%q is not a size; write a whole number with a unit, such as 512MiB, 4GiB or 64KB", s)
	}
	return Bytes(int64(n) * unit), nil
}

// String prints the size so that ParseBytes reads it back exactly.
func (b Bytes) String() string {
	for _, u := range sizeUnits {
		if b != 0 && int64(b)%u.n == 0 {
			return strconv.FormatInt(int64(b)/u.n, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}
