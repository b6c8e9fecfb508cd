// Package e2e holds what can only be tested with real processes: daemons that are
// killed, file systems that lose power, packages that are installed, browsers, clients
// in other languages and engines. It is a module of its own, so that nothing of it is in
// the sidecar's go.mod.
//
//	go -C e2e test -count=1 ./...         all of it
//	go -C e2e test -count=1 ./kills       one package
//
// What a package needs beside Go (Python, a C compiler, Chromium, root) is named in its
// doc.go. Where it is missing the tests say so and skip; with CI=true they fail, but for
// what only some machines let root do (a file system in memory with faults, a control
// group, mounts), which `ci again` lists as skipped. The go command does not know that a
// test here depends on files of the root: -count=1 keeps it from a cached result.
// [github.com/kvstored/kvstored/e2e/daemon] starts daemons for all of them.
package e2e
