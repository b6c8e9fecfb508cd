// Package recorded has daemons serve from disks that older programs have written. Each is
// an archive in testdata, in which zeros take no room.
//
//	go -C e2e test ./recorded
//
// It needs nothing but Go.
package recorded
