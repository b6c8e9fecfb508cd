// Package config is the daemon's configuration: its types, its defaults, the
// strict YAML reader, the environment overrides and the checks.
//
// It owns the keys of the file, the values that they take, and the meaning of
// both. A file that says anything else is an error; nothing is repaired, guessed
// or silently ignored. All problems of a file are reported at once, each as
//
//	file:line:column: key.path: the problem, and how to solve it
//
// It never opens anything but the configuration file, never looks at the
// machine (facts about the machine arrive in [Rules]) and imports nothing else
// of this module. It holds no state, no locks and no buffers; a [Config] is
// plain data that its owner may copy.
//
// A key is one struct field: its yaml tag is its name, its Go type decides
// how it is written, its line in [Default] is its default, its comment is its
// line in docs/reference/configuration.md. Further tags go into that page too:
//
//	range:"1..64"     what the value may be: least and most, each may be
//	                  missing, ">0s" is above, "0,256MiB.." is 0 or from there
//	oneof:"a,b"       the words it may be
//	reload:"at once"  [Reload] applies it to a running daemon, and when it
//	                  counts; a key without the tag takes a restart
//
// What the tags do not allow is refused, with their words; validate.go has what takes
// more than a tag. A new key is also added to kvstored.example.yaml, which a test compares with the
// defaults. `go generate ./config` writes the page anew.
//
//go:generate go test -run TestConfigurationPage -update .
package config
