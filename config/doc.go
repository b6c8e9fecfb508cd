// Package config is the daemon's configuration: its types, its defaults, the
// strict YAML reader, the environment overrides and the checks.
//
// It owns what the file may say and what the words in it mean. A file that
// says anything else is an error; nothing is repaired, guessed or silently
// ignored. All problems of a file are reported at once, each as
//
//	file:line:column: key.path: what is wrong, and what to do
//
// It never opens anything but the configuration file, never looks at the
// machine (what it must know of it arrives in [Rules]) and imports nothing
// else of this module. It holds no state and no locks; a [Config] is plain
// data that its owner may copy.
//
// A key is one struct field: its yaml tag is its name, its Go type decides
// how it is written, its line in [Default] is its default. The tag
// `reload:"live"` is on the keys that [Reload] applies to a running daemon; all
// others take a restart. A new key is also added to kvstored.example.yaml, which
// a test compares with the defaults, and, where values can be wrong, to
// validate.go.
package config
