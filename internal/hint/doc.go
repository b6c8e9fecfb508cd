// Package hint reads what clients say about the future of a prompt, in the
// request_configs of a request, and follows whether it comes true.
//
// It owns the open hints of all connections, bounded in number and age, and the
// counts of their outcomes. It never decides how a hint is used: the policies do.
// One mutex guards the open hints; it is a leaf, and a long prompt is looked up
// under it in rounds. It keeps no slice of a chain.
package hint
