package daemon

import (
	"path/filepath"
	"strings"
	"testing"
)

// An error says once what failed, on what, and what to do.
func TestListenErrors(t *testing.T) {
	l, err := listenTCP("listen.resp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr := l.Addr().String()
	_, err = listenTCP("listen.resp", addr)
	if err == nil || strings.Count(err.Error(), addr) != 1 || !strings.HasSuffix(err.Error(), "choose another address") {
		t.Errorf("an address that is taken: %v", err)
	}
	path := filepath.Join(t.TempDir(), "password")
	_, err = readPassword(path)
	if err == nil || strings.Count(err.Error(), path) != 1 || !strings.Contains(err.Error(), "write the secret into that file") {
		t.Errorf("a password file that is not there: %v", err)
	}
}
