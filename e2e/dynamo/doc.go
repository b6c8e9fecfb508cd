// Package dynamo compares the router's index with that of Dynamo's runtime: the hashes of
// blocks bit by bit, and what each worker has after random events.
//
//	python3 e2e/dynamo/install.py       # once: half a minute, 275 MB in the user's cache
//	go -C e2e test -count=1 ./dynamo    # 10 seconds; -streams 1000 compares more
//
// Where Dynamo's runtime is not installed everything is skipped, or fails with CI=true.
// engine/drive.py is what the tests drive.
package dynamo
