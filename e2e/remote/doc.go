// Package remote tests daemons that share a bucket: what one stores another finds, and a
// store that refuses, hangs, breaks off or is gone.
//
//	go -C e2e test ./remote
//	go -C e2e test ./remote -run TestSharedTrace -shared-trace /path/to/conversation_trace.jsonl
//
// It needs nothing: the store is in the test's process. With the path of versitygw in
// S3TEST_GATEWAY, which internal/test/nested/prepare prints, it is that one.
package remote
