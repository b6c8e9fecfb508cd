// Package whatif estimates from a sample of live traffic what other policies and other
// sizes of DRAM and disk would hit.
//
// # Owns
//
// [Play] plays a sample of package sample through the caches of package simulate, one pair
// of tiers after the other, scaled down as the sample is. The result is a [Report]. It says
// what the daemon really hit in the same time, and gives no advice where the estimate for
// the tiers as they are is another.
//
// # Never does
//
// It knows no daemon, and keeps nothing of a sample.
package whatif
