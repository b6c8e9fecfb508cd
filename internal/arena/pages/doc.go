// Package pages maps files of memory where huge pages fit, in the daemon and in its
// clients.
//
// A file in huge pages is mapped by them only if the mapping begins at a multiple of
// their size. Elsewhere each page of 4 KiB is mapped by itself when it is first read,
// which takes as long as copying it or longer: 3 to 10 us for each 64 KiB.
//
// A mapping is its caller's, who unmaps it once nothing reads it any more. The package
// keeps no state, has no lock, and keeps no descriptor.
package pages
