package budget

// Held is the charge for something that grows and shrinks, such as a buffer. The
// zero Held of no account bounds nothing. One goroutine uses it at a time.
type Held struct {
	Account *Account
	n       int64
}

// Set is called before it grows to n bytes, or after it has shrunk to them. The
// error is that of Charge, and leaves the charge as it was.
func (h *Held) Set(n int64) error {
	switch d := n - h.n; {
	case d > 0:
		if err := h.Account.Charge(d); err != nil {
			return err
		}
	case d < 0:
		h.Account.Release(-d)
	}
	h.n = n
	return nil
}

// Bytes is the charge.
func (h *Held) Bytes() int64 { return h.n }
