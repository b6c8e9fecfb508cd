package chart

import (
	"math"
	"strconv"
	"strings"
)

const (
	mostTicks    = 5 // of a linear axis, and one more for 0
	mostLogTicks = 9
)

// linearTicks are round numbers between low and high: multiples of a rounded step, as few
// as mostTicks allows. The + 0 makes 0 of -0.
func linearTicks(low, high float64, round func(float64) float64) (out []float64) {
	if !(high > low) || math.IsInf(high-low, 0) {
		return nil
	}
	step := round((high - low) / mostTicks)
	for i := math.Ceil(low/step-1e-9) + 0; i*step <= high+step*1e-9; i++ {
		out = append(out, i*step)
	}
	return out
}

// roundUp is the next of 1, 2, 2.5 and 5 times a power of ten.
func roundUp(v float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if v <= decade*m*(1+1e-9) {
			return decade * m
		}
	}
	return decade * 10
}

// roundUpBytes is likewise in a unit of 1,024 times the one before.
func roundUpBytes(v float64) float64 {
	unit := math.Pow(1024, max(0, math.Floor(math.Log2(v)/10)))
	if v /= unit; v > 100 {
		return unit * math.Exp2(math.Ceil(math.Log2(v)-1e-9))
	}
	return unit * roundUp(v)
}

// logTicks are round numbers between low and high on a logarithmic axis: the
// parts of each decade.
func logTicks(low, high float64, parts []float64) (out []float64) {
	for d := math.Floor(math.Log10(low)); d <= math.Log10(high)+1e-9; d++ {
		for _, m := range parts {
			if v := math.Pow(10, d) * m; v >= low*(1-1e-9) && v <= high*(1+1e-9) {
				out = append(out, v)
			}
		}
	}
	return out
}

// decadeParts are the ways to divide a decade, finest first.
var decadeParts = [][]float64{{1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 5}, {1, 3}, {1}}

// Number writes v with at most three digits behind the point, and with
// separators between thousands.
func Number(v float64) string {
	s := strconv.FormatFloat(v, 'f', 3, 64)
	if a := math.Abs(v); a > 0 && a < 0.001 {
		s = strconv.FormatFloat(v, 'g', 2, 64)
	}
	whole, part, found := strings.Cut(s, ".")
	if found {
		if part = strings.TrimRight(part, "0"); part != "" {
			part = "." + part
		}
	}
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	return sign + whole + part
}
