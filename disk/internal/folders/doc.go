// Package folders takes the folders of a disk tier: locks them, and checks that
// they belong together. The rest of what the tier asks of a file system is here too,
// but for payloads: folders that no other user can plant files in, files that survive a power
// failure whole, and how much room there is.
//
// The paths of a tier and its database are a set. Each folder has a marker, and
// a copy of it, with the set's id, the path's index, the secret of the headers and
// the epoch of the last start. Beside the database a list tells which paths the
// set has. A folder of another set is refused, and so is one that another process
// has locked; a path that the list names and that has no marker is missing.
//
// A damaged file is never removed, but kept under another name. What segments, the
// database and other files hold is not known here. Each call blocks as
// long as a device does; a Set is used by one goroutine. The caller of Claim
// closes the set.
package folders
