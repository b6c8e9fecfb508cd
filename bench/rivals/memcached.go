package main

import (
	"fmt"
	"strings"
)

// byMemcached speaks memcached's text protocol.
type byMemcached struct{ *socket }

func dialMemcached(path string) (conn, error) {
	s, err := dialSocket(path)
	return byMemcached{s}, err
}

func (m byMemcached) ping() error {
	if err := m.send([]byte("version\r\n")); err != nil {
		return err
	}
	return m.expect("VERSION")
}

func (m byMemcached) put(of uint64, value []byte) error {
	return m.putMany(of, [][]byte{value})
}

// putMany sends all and then reads the answers: the protocol has no command for
// several.
func (m byMemcached) putMany(first uint64, values [][]byte) error {
	for i, v := range values { // one by one: it answers while it reads, and both sides' buffers are small
		m.out = fmt.Appendf(m.out[:0], "set %s 0 0 %d\r\n", name(first+uint64(i)), len(v))
		if err := m.send(m.out, v, lineEnd); err != nil {
			return err
		}
	}
	for range values {
		if err := m.expect("STORED"); err != nil {
			return err
		}
	}
	return nil
}

func (m byMemcached) get(of uint64, into []byte) error { return m.getMany(of, [][]byte{into}) }

func (m byMemcached) getMany(first uint64, into [][]byte) error {
	m.out = append(m.out[:0], "get"...)
	for i := range into {
		m.out = fmt.Appendf(m.out, " %s", name(first+uint64(i)))
	}
	if err := m.send(append(m.out, lineEnd...)); err != nil {
		return err
	}
	for i, v := range into {
		if err := m.expect(fmt.Sprintf("VALUE %s 0 %d", name(first+uint64(i)), len(v))); err != nil {
			return err
		}
		if err := m.value(v); err != nil {
			return err
		}
	}
	return m.expect("END")
}

func (m byMemcached) forget(first, n uint64) error {
	for i := range n {
		if err := m.send([]byte("delete " + name(first+i) + "\r\n")); err != nil {
			return err
		}
		if got, err := m.line(); err != nil || got != "DELETED" && !strings.HasPrefix(got, "NOT_FOUND") {
			return fmt.Errorf("delete: %q, %w", got, err)
		}
	}
	return nil
}

func (m byMemcached) finish() error { return nil }
