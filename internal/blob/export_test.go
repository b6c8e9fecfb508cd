package blob

// Verify reports whether the value is what was sealed.
func (v *Value) Verify() bool { return v.ref.Block.Verify() }
