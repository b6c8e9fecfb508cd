// Package config is the configuration of `kvstored-router serve`: its keys, their defaults
// and their checks. The reader is that of the daemon's configuration: what a file says
// beside the keys is an error, with its line and column.
//
// A key is one struct field: its yaml tag is its name, its comment its line in
// docs/configuration.md, which `go generate ./config` writes.
//
// It owns no state and no locks, and opens no file but the configuration.
//
//go:generate go test -run TestConfigurationPage -update .
package config
