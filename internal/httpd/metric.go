package httpd

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Metric is a number of a program, or one for each value of its labels, as a T has it.
// One whose name ends in _total only grows.
type Metric[T any] struct {
	Name, Help string // the name without the prefix of the program
	Labels     []string
	read       func(*T, Put)
}

// Put takes a number, with the values of its labels.
type Put func(v float64, labels ...string)

// Number is what can be exported.
type Number interface {
	~int | ~int64 | ~uint64 | ~float64
}

// NewMetric is a metric whose numbers read puts, none where there are none.
func NewMetric[T any](name, help string, read func(*T, Put), labels ...string) Metric[T] {
	return Metric[T]{name, help, labels, read}
}

// OneMetric is a metric of one number.
func OneMetric[T any, N Number](name, help string, read func(*T) N) Metric[T] {
	return NewMetric(name, help, func(from *T, put Put) { put(float64(read(from))) })
}

// MetricBy is a metric of one number for each key of a map, which is the value of its label.
func MetricBy[T any, K comparable, N Number](name, help, label string, read func(*T) map[K]N) Metric[T] {
	return NewMetric(name, help, func(from *T, put Put) {
		for k, n := range read(from) {
			put(float64(n), fmt.Sprint(k))
		}
	}, label)
}

// Collect puts out the metrics of a table, named with a prefix, as from has them.
func Collect[T any](out chan<- prometheus.Metric, prefix string, table []Metric[T], from *T) {
	for i := range table {
		m, kind := &table[i], prometheus.GaugeValue
		if strings.HasSuffix(m.Name, "_total") {
			kind = prometheus.CounterValue
		}
		desc := prometheus.NewDesc(prefix+m.Name, m.Help, m.Labels, nil)
		m.read(from, func(v float64, labels ...string) { out <- prometheus.MustNewConstMetric(desc, kind, v, labels...) })
	}
}
