package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// echoBytes is what an echo carries: about as much as a lookup's answer.
const echoBytes = 64

// echoSocket is where the bare server listens.
func echoSocket(socket string) string { return filepath.Join(filepath.Dir(socket), "echo.sock") }

// serveEcho is the least that a server can do, one thread for one client, without a
// runtime in between: it reads, and sends the same. What its client waits beside an
// attack on the daemon is what the machine alone costs.
func serveEcho(socket string) error {
	runtime.LockOSThread()
	l, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	syscall.CloseOnExec(l)
	path := echoSocket(socket)
	if err := syscall.Bind(l, &syscall.SockaddrUnix{Name: path}); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o666); err != nil {
		return err
	}
	if err := syscall.Listen(l, 1); err != nil {
		return err
	}
	fmt.Println("begun")
	var b [echoBytes]byte
	for {
		c, _, err := syscall.Accept(l)
		if err != nil {
			return err
		}
		for n := 1; n > 0; {
			if n, _ = syscall.Read(c, b[:]); n > 0 {
				n, _ = syscall.Write(c, b[:n])
			}
		}
		_ = syscall.Close(c) // the client has left
	}
}

// echo is a client of that server.
type echo int

func dialEcho(socket string) (echo, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return 0, err
	}
	syscall.CloseOnExec(fd)
	return echo(fd), syscall.Connect(fd, &syscall.SockaddrUnix{Name: echoSocket(socket)})
}

// call sends and reads it back.
func (e echo) call() error {
	var b [echoBytes]byte
	if _, err := syscall.Write(int(e), b[:]); err != nil {
		return err
	}
	n, err := syscall.Read(int(e), b[:])
	if err == nil && n != len(b) {
		err = fmt.Errorf("echo: %d bytes of %d", n, len(b))
	}
	return err
}
