package arena

// QuarantineStats is a snapshot of a quarantine.
type QuarantineStats struct {
	Peers  int // processes waited for
	Blocks int
	Bytes  int64 // padding included
}
