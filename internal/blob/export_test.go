package blob

// Verify reports whether the value matches the checksum it was sealed with.
func (v *Value) Verify() bool { return v.ref.Block.Verify() }
