// Command vllm times the first token of a real vLLM that computes on CPUs, whose prompts are
// computed, or come from its own prefix cache, vLLM's host pool, vLLM's tier of files, and the
// daemon, as vLLM's tier and as its pool, from DRAM and from disk.
//
//	go -C bench run ./engines/vllm [-model narrow] [-serve] [-for 14m] [-rounds 100] [-sizes 1500,6000,24000] [-dir DIR]
//
// Engines are processes of e2e/vllm/engine/drive.py with a small model, or with -serve vllm serve,
// all there at once, and answer by turns: each round has each column once, in an order that rotates, and one restart
// of the daemon before the columns of the disk. A prompt that did not come from where its
// column says is an error. "fio" is what fio takes for the same bytes from the disk. "again" is a second engine like the first, which shows what a
// difference is worth. vLLM has no worker for CPUs below its host pool: e2e/vllm/engine/cpu_tiering.py
// is in its place for host, files and tier. Files are in the kernel's page cache. LMCache is
// not among them: vLLM's connector for it takes CUDA streams.
//
// At the end the daemon's process is stopped, and batches of prompts that are nowhere are timed:
// the first pays the daemon's silence.
//
// It installs vLLM as e2e/vllm does, and the package of this checkout beside it.
//
// Locks: none. Buffers: none.
package main
