// Package version has the one version number of the repository: of the daemon,
// its commands, and, by a test, of the Python client. It also says which commit
// this program was built from, as far as the build has recorded it. It keeps no
// state.
package version
