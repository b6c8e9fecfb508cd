package socket

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

// A socket whose file was removed is bound again, under the eyes of the goroutine that
// accepts; another file at its path stays, and is an error.
func TestListenerIsBoundAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Bind(path, 0o620, "")
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	log := zerolog.New(&said)
	accepted, ended := make(chan struct{}, 1), make(chan error)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			_ = c.Close()
			accepted <- struct{}{}
		}
	}()
	comes := func() {
		t.Helper()
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		<-accepted
	}
	look := func(wantAgain, wantErr bool) {
		t.Helper()
		if again, err := l.Look(&log); again != wantAgain || (err != nil) != wantErr {
			t.Errorf("again %t, error %v", again, err)
		}
	}
	look(false, false)
	comes()
	for range 2 {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		look(true, false)
		comes()
		if st, err := os.Lstat(path); err != nil || st.Mode().Perm() != 0o620 || !isOwn(l.Own(), st) {
			t.Errorf("the file is %v, %v", st, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	other, err := Bind(path, 0o600, "")
	if err != nil {
		t.Fatal(err)
	}
	said.Reset()
	look(false, true)
	look(false, true)
	if n := strings.Count(said.String(), "not ready"); n != 1 {
		t.Errorf("it is said %d times: %s", n, said.String())
	}
	if again, err := other.Look(&log); again || err != nil {
		t.Errorf("the other socket was touched: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	look(false, true) // stale, and not this process's
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	look(true, false)
	comes()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("a closed listener accepts")
	}
	_ = os.Remove(path)
	look(false, false)
	if _, err := os.Lstat(path); err == nil {
		t.Error("a closed listener is bound again")
	}
}
