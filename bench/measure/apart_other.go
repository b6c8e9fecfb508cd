//go:build !linux

package measure

import "errors"

// Apart is an error: processes are bound to processors on Linux only.
func Apart() (on func(start func() error) error, err error) {
	return nil, errors.New("processes are bound to processors on Linux only")
}
