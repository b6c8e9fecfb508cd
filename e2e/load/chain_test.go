package load_test

import (
	"testing"

	"github.com/kvstored/kvstored/e2e/load"
)

// TestRight: a payload is right to the last byte, and for its own key only.
func TestRight(t *testing.T) {
	chain := load.Chain(t, load.Space, 7, 2)
	one, other := chain.Key(0), chain.Key(1)
	p := make([]byte, load.Size(one))
	load.Fill(p, one)
	if !load.Right(one, p) || load.Right(other, p) || load.Right(one, p[1:]) || load.Filled(p, other) {
		t.Error("a payload is taken for another's, or not for its own")
	}
	p[len(p)-1] ^= 1
	if load.Right(one, p) {
		t.Error("the last byte is not compared")
	}
}
