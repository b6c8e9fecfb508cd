// Command sglang times the first token of a real SGLang that computes on a CPU, whose prompts
// are computed, or come from its own cache, that of a second engine, from HiCache over SGLang's
// files and over the daemon, and from the daemon by SGLang's linker.
//
//	go -C bench run ./engines/sglang [-for 10m] [-rounds 100] [-sizes 1000,3000] [-dir DIR]
//
// Engines are processes of e2e/sglang/engine/drive.py with a small model, all there at once,
// and answer by turns, while the others are paused, as a scheduler of SGLang that waits takes a
// processor: each round has each column once, in an order that rotates. A prompt
// that did not come from where its column says is an error. Files are in the kernel's page
// cache, and the daemon's chunks in DRAM.
//
// It installs SGLang as e2e/sglang does, and the package of this checkout beside it.
//
// Locks: none. Buffers: none.
package main
