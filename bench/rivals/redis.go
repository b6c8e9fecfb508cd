package main

import "fmt"

// byRedis speaks RESP2.
type byRedis struct{ *socket }

func dialRedis(path string) (conn, error) {
	s, err := dialSocket(path)
	return byRedis{s}, err
}

var lineEnd = []byte("\r\n")

// name is how a value is called: as connectors of engines do.
func name(of uint64) string { return fmt.Sprintf("model@1@0@%032x", of) }

func (r byRedis) ping() error {
	if err := r.send([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		return err
	}
	return r.expect("+PONG")
}

func (r byRedis) put(of uint64, value []byte) error {
	r.out = fmt.Appendf(r.out[:0], "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n", len(name(of)), name(of), len(value))
	if err := r.send(r.out, value, lineEnd); err != nil {
		return err
	}
	return r.expect("+OK")
}

func (r byRedis) get(of uint64, into []byte) error {
	return r.ask([]byte("*2\r\n$3\r\nGET\r\n"), of, into)
}

// ask sends a command for the values from the first on, and reads them.
func (r byRedis) ask(command []byte, first uint64, into ...[]byte) error {
	for i := range into {
		n := name(first + uint64(i))
		command = fmt.Appendf(command, "$%d\r\n%s\r\n", len(n), n)
	}
	if err := r.send(command); err != nil {
		return err
	}
	if len(into) > 1 {
		if err := r.expect(fmt.Sprintf("*%d", len(into))); err != nil {
			return err
		}
	}
	for _, v := range into {
		if err := r.expect(fmt.Sprintf("$%d", len(v))); err != nil {
			return err
		}
		if err := r.value(v); err != nil {
			return err
		}
	}
	return nil
}

func (r byRedis) putMany(first uint64, values [][]byte) error {
	parts := [][]byte{fmt.Appendf(nil, "*%d\r\n$4\r\nMSET", 1+2*len(values))}
	for i, v := range values {
		n := name(first + uint64(i))
		parts = append(parts, fmt.Appendf(nil, "\r\n$%d\r\n%s\r\n$%d\r\n", len(n), n, len(v)), v)
	}
	if err := r.send(append(parts, lineEnd)...); err != nil {
		return err
	}
	return r.expect("+OK")
}

func (r byRedis) getMany(first uint64, into [][]byte) error {
	return r.ask(fmt.Appendf(nil, "*%d\r\n$4\r\nMGET\r\n", 1+len(into)), first, into...)
}

func (r byRedis) forget(first, n uint64) error {
	command := fmt.Appendf(nil, "*%d\r\n$3\r\nDEL\r\n", 1+n)
	for i := range n {
		of := name(first + i)
		command = fmt.Appendf(command, "$%d\r\n%s\r\n", len(of), of)
	}
	if err := r.send(command); err != nil {
		return err
	}
	return r.expect(":")
}

func (r byRedis) finish() error { return nil }
