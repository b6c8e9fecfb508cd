// Package hint reads what clients say about the future of a prompt, in the
// request_configs of a request.
//
// It never decides how a hint is used: the policies do. It has no state and no locks.
package hint
