package human

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
)

// Count is n with separators between thousands.
func Count[N int | int64 | uint32 | uint64 | float64](n N) string { return humanize.Comma(int64(n)) }

// Bytes is a size in binary units; a negative one is zero.
func Bytes[N int | int64 | uint64 | float64](n N) string { return humanize.IBytes(uint64(max(n, 0))) }

// Rate is GB/s in decimal units, as memory and disks are rated.
func Rate(gb float64) string { return humanize.Bytes(uint64(gb*1e9)) + "/s" }

// Percent is the share of part in whole; "-" of nothing.
func Percent(part, whole float64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*part/whole)
}

// Micros is a duration given in microseconds, with about three digits.
func Micros(us float64) string {
	switch d := time.Duration(us * float64(time.Microsecond)); {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.1f us", us)
	case d < 10*time.Millisecond:
		return Count(us) + " us"
	case d < 10*time.Second:
		return Count(us/1e3) + " ms"
	default:
		return fmt.Sprintf("%.0f s", us/1e6)
	}
}

// Duration is a length of time, in the unit that it is long in.
func Duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	default:
		return d.Round(time.Second).String()
	}
}

// Seconds is Duration of a number of seconds.
func Seconds(s float64) string { return Duration(time.Duration(s * float64(time.Second))) }

// Plural is n and the noun that fits it.
func Plural[N int | int64 | uint32 | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Count(n) + " " + noun + "s"
}
