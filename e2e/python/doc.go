// Package python runs the tests of the Python client and of what stands on it (the
// connectors for vLLM, SGLang and LMCache, llama.cpp), each module of
// clients/python/tests as a test of its own, and checks the types of the package. The
// package that engines' images carry is run too, against a daemon of this tree.
//
//	go -C e2e test ./python
//	go -C e2e test ./python -run TestPython/test_client
//
// It needs python3 with numpy and pip, libxxhash, and what single modules name that are
// skipped without it: llama.cpp, which `python3 cmd/kvstored/llamacpp/library.py fetch`
// brings. TestTypes needs npm with pyright in its cache.
package python
