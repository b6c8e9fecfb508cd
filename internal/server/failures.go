package server

import (
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/wire"
)

// Operations and codes beyond these share a count, so that clients cannot make more.
const (
	countedOps   = 32
	countedCodes = 48
)

// failures counts the requests that were refused or failed.
type failures [countedOps + 1][countedCodes + 1]atomic.Uint64

func (f *failures) add(op wire.Op, code wire.Code) {
	o := countedOps
	if op.Known() {
		o = min(int(op), countedOps)
	}
	f[o][min(int(code), countedCodes)].Add(1)
}

// Failures is how many requests of an operation were answered with a code.
type Failures struct {
	Op       string `json:"op"` // unknown: none that this daemon knows
	Code     string `json:"code"`
	Requests uint64 `json:"requests"`
}

// read lists the counts, and their sum.
func (f *failures) read() (list []Failures, sum uint64) {
	for o := range f {
		op := "unknown"
		if wire.Op(o).Known() {
			op = wire.Op(o).String()
		}
		for code := range f[o] {
			if n := f[o][code].Load(); n > 0 {
				list, sum = append(list, Failures{op, wire.Code(code).String(), n}), sum+n
			}
		}
	}
	return list, sum
}
