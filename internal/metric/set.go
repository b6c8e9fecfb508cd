package metric

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Described is what the documentation says of a metric. Its name lacks the prefix.
type Described struct {
	Name, Help string
	Labels     []string
	Buckets    []float64 // of a histogram, in its unit; otherwise nil
	prefix     string
}

// Set is the metrics of one program.
type Set struct {
	Prefix string
	List   []Described // in the order in which they were described
}

// Desc describes a number.
func (s *Set) Desc(name, help string, labels ...string) *prometheus.Desc {
	s.List = append(s.List, Described{Name: name, Help: help, Labels: labels, prefix: s.Prefix})
	return prometheus.NewDesc(s.Prefix+name, help, labels, nil)
}

// Histogram describes one with these upper bounds.
func (s *Set) Histogram(name, help string, buckets []float64, labels ...string) Described {
	d := Described{name, help, labels, buckets, s.Prefix}
	s.List = append(s.List, d)
	return d
}

// Vec makes the histogram.
func (d *Described) Vec() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.prefix + d.Name, Help: d.Help, Buckets: d.Buckets}, d.Labels)
}

// Out takes numbers, with the values of their labels.
type Out chan<- prometheus.Metric

// Gauge puts a number that may fall.
func (o Out) Gauge(d *prometheus.Desc, v float64, labels ...string) {
	o <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

// Seconds puts a time that only grows.
func (o Out) Seconds(d *prometheus.Desc, v time.Duration, labels ...string) {
	o <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v.Seconds(), labels...)
}

// Counter puts a number that only grows.
func (o Out) Counter(d *prometheus.Desc, n uint64, labels ...string) {
	o <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}
