// Package access decides what a user may do with which space. It is data only:
// the server asks it once for each user and space, and again when the rules have
// changed.
//
// Without rules every user that may connect may read and write everything. With
// any rule the first that names the user and matches the space's model counts,
// and a user for whom there is none has no right. Root and the user that runs the
// daemon may always do everything.
//
// The arena is one memory. So a user maps it only if the rules give it the right
// to read every space there can be: see [Policy.MayMap].
//
// A [Policy] is immutable once it is made, so it has no lock, and it holds no
// buffer of a caller.
package access
