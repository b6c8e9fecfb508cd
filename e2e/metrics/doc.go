// Package metrics holds what daemons export, and the rules of deploy/prometheus, against
// Prometheus' own tool.
//
// It needs promtool, which Debian's package prometheus brings.
package metrics
