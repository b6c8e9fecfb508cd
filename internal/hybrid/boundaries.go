package hybrid

// Boundaries calls do, in ascending order, with the lengths of a prompt of n whose
// windows and states are worth storing: the junction, and the end. hit is how much of
// the prompt was usable before, and run how far the full groups reached: where run is
// more another prompt parts from this one there, or what followed was evicted, and the
// next one will end there too. The unit is the caller's.
func Boundaries(hit, run, n int, do func(end int)) {
	if hit < run && run < n {
		do(run)
	}
	if n > 0 {
		do(n)
	}
}
