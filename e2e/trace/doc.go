// Package trace plays published traces through real daemons. It needs the traces, in
// ../shared/traces beside the checkout, and is skipped where they are not.
package trace
