// Package sglang runs a real SGLang, which computes on a CPU, with models of its own whose
// weights are the same each time, beside daemons that are killed and restarted.
//
//	python3 e2e/sglang/install.py                       # once: 5 minutes, 2.9 GB in the user's cache
//	go -C e2e test -count=1 ./sglang                    # the short form
//	go -C e2e test -count=1 -timeout 0 ./sglang -long   # all of it
//
// Where that SGLang is not installed everything is skipped, or fails with CI=true.
// engine/drive.py is the engine that the tests drive; stand_ins.py has what SGLang lacks on
// CPUs.
package sglang
