// Package extent hands out ranges of an address space: the arena's memory and
// the disk tier's extent files. It is the two-level segregated fit of Masmano,
// Ripoll, Crespo and Real ("TLSF: a New Dynamic Memory Allocator for Real-Time
// Systems", ECRTS 2004) over units of 4 KiB, with its records outside the
// space it manages.
//
// It owns one 32-byte record per live or free extent, in address order, with a
// tag of the caller's, the size-classed lists of the free ones, and an index
// from addresses to records. A free extent is joined with its free neighbours at once, so there are never
// two in a row.
//
// Where TLSF finds a block's neighbours through tags inside the memory, a file
// has no room for tags, and an array with a tag for each unit would cost 5
// billion entries on a disk of 20 TiB. So the space is cut into buckets of 256
// KiB to 1 MiB, each knowing the record of the first extent that starts in it;
// the records after it are one link away. The index costs at most 16 bytes per
// MiB, never grows, and a lookup walks at most the extents that start in one
// bucket: none but the wanted one when they are as large as the bucket, and
// never more than 256.
//
// It never touches the bytes it manages, does no I/O, starts no goroutine and
// has no lock: an Allocator belongs to its owner, who serialises all calls.
// No buffer passes through it.
package extent
