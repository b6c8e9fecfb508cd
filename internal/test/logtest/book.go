package logtest

import (
	"bytes"
	"sync"
)

// Book is what the code under test and its background work log, while a test
// reads it. Its zero value is ready, and it is safe for concurrent use.
type Book struct {
	mu struct {
		sync.Mutex
		text bytes.Buffer
	}
}

// Write implements io.Writer. It never fails.
func (b *Book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.text.Write(p)
}

// String returns all that was written.
func (b *Book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.text.String()
}
