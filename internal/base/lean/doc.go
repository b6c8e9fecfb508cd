// Package lean deletes from maps so that they give memory back: a map of Go's keeps the
// room of all entries that it ever had. It owns nothing and has no lock.
package lean
