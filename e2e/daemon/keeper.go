package daemon

import (
	"errors"
	"os"
	"time"
)

// Keep runs serve --keeper for the daemon and returns it once it listens.
func (d *Daemon) Keep() *Daemon {
	d.t.Helper()
	k := d.Beside()
	k.Socket, k.Log = d.Socket+".keep", d.Log+".keep"
	if err := k.Exec("serve", "--keeper"); err != nil {
		d.t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(startPoll) {
		if _, err := os.Stat(k.Socket); err == nil {
			return k
		}
		if time.Now().After(end) {
			d.t.Fatal(k.failed(errors.New("the keeper does not listen")))
		}
	}
}
