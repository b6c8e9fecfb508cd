//go:build !linux

package arena

import "errors"

func newWindow(int64) (*Window, error) { return nil, errors.ErrUnsupported }

// resident is for windows, of which there are none.
func resident([]byte) bool { return false }

// GiveBack has nothing to do where no window can be made.
func (w *Window) GiveBack(int64, int64) error { return nil }

// WindowsHuge reports whether windows get huge pages.
func WindowsHuge() bool { return false }

// Close has nothing to do where no window can be made.
func (w *Window) Close() error { return nil }
