// Package need finds what tests need beside Go: programs, Python packages, root. Where it
// is missing the test says what brings it and is skipped; with CI=true it fails.
//
// It holds no lock and no buffer.
package need
