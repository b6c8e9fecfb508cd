package main

import "github.com/kvstored/kvstored/bench/measure"

// memory is the floor: values are copied to memory of this process and back, in
// the way that is fastest here.
type memory struct {
	store []byte
	copy  measure.Copy
}

func dialMemory(size int) *memory {
	m := &memory{store: make([]byte, bytesOfCell)}
	for i := range m.store {
		m.store[i] = byte(i)
	}
	src := make([]byte, bytesOfCell/2)
	copy(src, m.store)
	m.copy, _ = measure.Fastest(m.store, src, size)
	return m
}

// at is where a value lies.
func (m *memory) at(name uint64, size int) []byte {
	return m.store[int(name&(1<<31-1))*size%(len(m.store)-size+1):][:size]
}

func (m *memory) ping() error { return nil }

func (m *memory) put(name uint64, value []byte) error {
	m.copy(m.at(name, len(value)), value)
	return nil
}

func (m *memory) get(name uint64, into []byte) error {
	m.copy(into, m.at(name, len(into)))
	return nil
}

func (m *memory) putMany(first uint64, values [][]byte) error {
	for i, v := range values {
		_ = m.put(first+uint64(i), v) // it cannot fail
	}
	return nil
}

func (m *memory) getMany(first uint64, into [][]byte) error {
	for i, v := range into {
		_ = m.get(first+uint64(i), v) // it cannot fail
	}
	return nil
}

func (m *memory) forget(uint64, uint64) error { return nil }
func (m *memory) finish() error               { return nil }
