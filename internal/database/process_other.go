//go:build !linux

package database

import (
	"os"
	"syscall"
)

func program() (string, error) { return os.Executable() }

// processAttributes are none: the process ends when its sockets do.
func processAttributes() *syscall.SysProcAttr { return nil }

func goFirst() {}
