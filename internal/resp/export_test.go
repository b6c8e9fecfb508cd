package resp

// Verify reports whether the value matches the checksum it was sealed with.
func (v *Value) Verify() bool { return v.ref.Block.Verify() }

// ShelterFor is how long a value that Has found is kept.
const ShelterFor = shelterFor
