// Package ages tests that the largest age of a chunk holds where it outlives the daemon
// that was told of it: over a kill, without the index, over a restart that keeps DRAM, and in the
// bucket for other hosts. Inside one process internal/store and internal/server test it.
package ages
