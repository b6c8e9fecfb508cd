// Package packages installs what is handed out: packages in a root that forgets them, with
// their daemon, under systemd too.
//
//	go -C e2e test ./packages
//	go -C e2e test ./packages -run TestPackages -install all
//
// It needs root, dpkg, for more of it rpm and systemd, and the builder of packages, which
// internal/test/nested/prepare builds. deploy/release tests that two builds are equal.
package packages
