// Package trace reads the published traces that benches play.
package trace
