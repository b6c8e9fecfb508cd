package key_test

import (
	"fmt"
	"log"

	"github.com/kvstored/kvstored/key"
)

// Two prompts that begin with the same chunk have the same first key, and
// different ones from where they differ on.
func Example() {
	b, err := key.NewBuilder(key.Space{
		Model: "org/model-8b", World: 1, DType: "bfloat16/paged-16",
		ChunkTokens: 4, Method: key.SHA256,
	})
	if err != nil {
		log.Fatal(err)
	}
	var first, second key.Chain
	if err := b.Tokens(&first, []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9}, key.Options{}); err != nil {
		log.Fatal(err)
	}
	if err := b.Tokens(&second, []uint32{1, 2, 3, 4, 5, 6, 7, 0}, key.Options{}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(first.Len(), "whole chunks") // the ninth token fills none
	for i := range first.Len() {
		fmt.Println(first.Key(i) == second.Key(i))
	}
	// Output:
	// 2 whole chunks
	// true
	// false
}

// Everything that changes the bytes of a payload is part of its space, so that
// payloads that differ never meet.
func ExampleSpace_ID() {
	s := key.Space{
		Model: "org/model-8b", World: 2, DType: "bfloat16/paged-16",
		ChunkTokens: 256, Method: key.SHA256,
	}
	rank0, err := s.ID()
	if err != nil {
		log.Fatal(err)
	}
	s.Worker = 1
	rank1, err := s.ID()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(rank0 == rank1)

	s.ChunkTokens = 0
	_, err = s.ID()
	fmt.Println(err)
	// Output:
	// false
	// invalid space: chunk tokens is 0: use 1 to 65536
}

// An engine that hashes its own prompts hands its hashes over as they are.
func ExampleBuilder_Hashes() {
	b, err := key.NewBuilder(key.Space{
		Model: "org/model-8b", World: 1, DType: "bfloat16/paged-16",
		ChunkTokens: 16, Method: "given:my-engine",
	})
	if err != nil {
		log.Fatal(err)
	}
	var c key.Chain
	hashes := []byte{1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2} // two, of 8 bytes
	if err := b.Hashes(&c, 8, hashes, []uint32{16, 16}, key.Options{}); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%x\n%x\n", c.Hashes[0], c.Hashes[1])
	// Output:
	// 01010101010101010000000000000000
	// 02020202020202020000000000000000
}
