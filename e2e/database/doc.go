// Package database tests the process of a database: its kills and its last words, its
// signals and rights, and compactions whose device fails. That takes the file system that
// fails, which go run ./internal/test/nested/prepare builds in the folder above.
package database
