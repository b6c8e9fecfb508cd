// Command ci runs the suites as a change must pass them. .ci/run and .ci/long call it.
//
//	ci weigh [-C DIR]  go test ./... in the root, or in the module of a folder below it, with
//	                   the processor time of each package
//	ci again [ARGS]    go test ARGS in e2e; a test that missed a deadline has a second try
//	ci flakes [-for 90m] [-state DIR] [PATTERNS]
//	                   the root's compiled tests again and again, shuffled, beside load
//
// # Rules
//
// A test of the root is to take a second of processor time, a package ten. What seems to
// take more than twice that ([mostTest], [mostPackage]) is measured once more alone, and
// fails then. A test of the root has one try.
//
// A test of e2e all of whose messages say that it missed a deadline is run once more by
// itself, in the packages of mayTry. Passed then, it is named as flaky at the end; more
// than three of them in a run fail it. History, kills, damage, power, equality with an
// engine and isolation have one try, and so has what says wrong, lost, older, torn, leaked,
// panic, race or hung.
//
// Results of e2e are never taken from the cache: the go command does not know that they
// depend on files of the root.
package main
