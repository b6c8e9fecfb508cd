// Release builds what is handed out of a version of kvstored into a folder: for
// each system the static programs, each in an archive, deb and rpm packages, the
// software bill of materials of each program, a container image of all of them, the
// Python wheel with the daemon, and the sums of all files, signed where there is a
// key. Equal commits and toolchains make equal bytes. It publishes nothing.
//
// It is a module of its own, so that the packager's modules are none of the
// sidecar's.
//
//	go -C deploy/release run . -out /tmp/release -key key.pem
package main
