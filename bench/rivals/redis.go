package main

import (
	"fmt"
	"strconv"
	"strings"
)

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
	names := make([]uint64, n)
	for i := range names {
		names[i] = first + uint64(i)
	}
	_, err := r.number(about("DEL", names))
	return err
}

func (r byRedis) counts(names []uint64) func() (int, error) {
	command := about("EXISTS", names)
	return func() (int, error) { return r.number(command) }
}

// about is a command with many names.
func about(command string, names []uint64) []byte {
	out := fmt.Appendf(nil, "*%d\r\n$%d\r\n%s\r\n", 1+len(names), len(command), command)
	for _, n := range names {
		of := name(n)
		out = fmt.Appendf(out, "$%d\r\n%s\r\n", len(of), of)
	}
	return out
}

// number sends a command that a number answers.
func (r byRedis) number(command []byte) (int, error) {
	if err := r.send(command); err != nil {
		return 0, err
	}
	got, err := r.line()
	if err != nil {
		return 0, err
	}
	number, is := strings.CutPrefix(got, ":")
	if !is {
		return 0, fmt.Errorf("got %q, want a number", got)
	}
	return strconv.Atoi(number)
}

func (r byRedis) finish() error { return nil }
