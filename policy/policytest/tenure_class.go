package policytest

import "math"

// classOf is the class in the order count, tail, new, length.
func classOf(count int, last bool, fresh, tokens, hint int) int {
	third := func(n, low, high int) int {
		if n <= low {
			return 0
		} else if n <= high {
			return 1
		}
		return 2
	}
	tail := 0
	if last {
		tail = 1
	}
	return hint*72 + (count-1)*18 + tail*9 + third(fresh, 1024, 8192)*3 + third(tokens, 1536, 24576)
}

// binEnds are where the bins end, in units of the first.
var binEnds = func() (ends [26]float64) {
	for b := range ends {
		ends[b] = math.Pow(2, float64(b)/2)
	}
	return ends
}()

// ageBin compares with the bounds one by one.
func ageBin(age int64) int {
	bin := 0
	for bin < 25 && float64(age) >= 32768*binEnds[bin] {
		bin++
	}
	return bin
}

// stepOf is the step of the cost of a token so deep in a prompt.
func stepOf(depth, twice float64) (step int) {
	if twice == 0 {
		return 0
	}
	cost := 1 + depth/twice
	for step < 7 && cost*cost >= math.Pow(2, float64(step+1)) {
		step++
	}
	return step
}
