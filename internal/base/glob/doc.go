// Package glob matches the names of models with the patterns of rules: * is any
// run of characters, slashes included, and ? any one. There is no escape. Case
// counts.
//
// It holds no state and no buffer.
package glob
