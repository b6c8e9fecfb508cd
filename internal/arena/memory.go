package arena

// MemoryLimit is how much memory this process may use in bytes, and what says
// so: the smallest limit of its control groups (version 1 or 2) or the
// machine's memory. It is errors.ErrUnsupported where that cannot be told.
func MemoryLimit() (limit int64, source string, err error) {
	return memoryLimit()
}
