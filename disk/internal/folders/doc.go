// Package folders takes the folders of a disk tier: locks them, and checks that
// they belong together.
//
// The paths of a tier and its database are a set. Each folder has a marker, and
// a copy of it, with the set's id, the path's index, the secret of the headers and
// the epoch of the last start. Beside the database a list tells which paths the
// set has. A folder of another set is refused, and so is one that another process
// has locked; a path that the list names and that has no marker is missing.
//
// It never removes a file that it finds: a damaged one is kept under another
// name. It does not know what segments and the database hold. Each call blocks as
// long as a device does; a Set is used by one goroutine. The caller of Claim
// closes the set.
package folders
