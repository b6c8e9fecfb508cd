// Package vllm runs a real vLLM, which computes on CPUs, with models of its own whose weights
// are the same each time, beside daemons that are killed, stopped and restarted.
//
//	python3 e2e/vllm/install.py                       # once: 4 minutes, 2.3 GB in the user's cache
//	go -C e2e test -count=1 ./vllm                    # the short form
//	go -C e2e test -count=1 -timeout 0 ./vllm -long   # all of it
//
// Where that vLLM is not installed everything is skipped, or fails with CI=true.
// engine/drive.py is the engine that the tests drive, engine/cpu_tiering.py the worker that
// vLLM lacks on CPUs.
package vllm
