package folders

import "errors"

// What lies in the folders of a set.
const (
	LockName   = "kvstored.lock"
	FormatName = "kvstored.format"
	FormatCopy = "kvstored.format.copy" // the same once more: with it goes the secret

	// MembersName is the file beside the database that tells which paths belong
	// to the set: a line each, with its index and where it was last.
	MembersName = "kvstored.paths"

	DatabaseName  = "badger" // the folder of the database
	SegmentPrefix = "seg-"   // of the names of segments
)

// MaxPaths is how many paths a set may ever have had. The index of a path lies
// in one byte of a segment's number.
const MaxPaths = 256

// ErrAbsent says that what should be in a folder is not.
var ErrAbsent = errors.New("is its disk mounted?")
