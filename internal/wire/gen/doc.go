// Program gen prints from testdata/wire/schema.json: Python's codec, Go's numbers and
// structs with the schema's notes as comments, and Go's codec. By hand are chains, whose
// items depend on their form, and the ends of the two messages that have payloads.
//
// # Owns
//
// How each kind of field is declared, written and read. The fields of a message, their
// order, their names and their notes are the schema's.
//
// # Never does
//
// It decides nothing by a message's name, but for the magic of hello, the items of a
// chain and the reply of a batch that may be empty. Its tables have other names for Go.
//
// # Locks and buffers
//
// None.
package main

//go:generate go run . -root ../../..
