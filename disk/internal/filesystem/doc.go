// Package filesystem is what the disk tier asks of a file system beside the
// payloads: folders that no other user can plant files in, files that survive a
// power failure whole, and how much room there is.
//
// It holds no lock and no buffer, and does not know what the
// files are for. Each call blocks as long as its device does.
package filesystem
