package hybrid

// Boundaries calls do, in ascending order, with the lengths of a prompt of n whose
// windows and states are worth storing: each multiple of every that is computed (0:
// none), the junction, and the end. hit is how much of the prompt was usable before,
// and run how far the full groups reached: where run is more another prompt parts from
// this one there, or what followed was evicted, and the next one will end there too.
// The unit is the caller's.
func Boundaries(hit, run, n, every int, do func(end int)) {
	junction := run
	if junction <= hit {
		junction = n
	}
	end := n
	if every > 0 {
		end = (hit/every + 1) * every
	}
	for ; end < n; end += every {
		if junction < end {
			do(junction)
		}
		if do(end); junction <= end {
			junction = n
		}
	}
	if junction < n {
		do(junction)
	}
	if n > 0 {
		do(n)
	}
}
