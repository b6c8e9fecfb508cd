package resp_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/resp"
)

// TestWrongPasswordWaits: after a wrong password the right one works, after a
// wait, on other connections of the host too, and those that are logged in go on.
func TestWrongPasswordWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, resp.Options{Settings: resp.Settings{Password: "right"}})
		ask := func(c *conn, command, want string) time.Duration {
			t.Helper()
			start := time.Now()
			if _, err := c.Write(encode(strings.Fields(command)...)); err != nil {
				t.Fatal(err)
			}
			if line, err := c.in.ReadString('\n'); err != nil || line != want+"\r\n" {
				t.Errorf("%s: %q, %v; want %q", command, line, err, want)
			}
			return time.Since(start)
		}
		const wrong = "-WRONGPASS invalid username-password pair or user is disabled."
		inside, guesser, other := r.dial(r.tcp), r.dial(r.tcp), r.dial(r.tcp)
		ask(inside, "AUTH right", "+OK")
		ask(guesser, "AUTH guess", wrong)
		if d := ask(guesser, "AUTH another", wrong); d != 100*time.Millisecond {
			t.Errorf("the second guess is answered after %v", d)
		}
		ask(inside, "PING", "+PONG")
		if d := ask(other, "AUTH right", "+OK"); d != 200*time.Millisecond {
			t.Errorf("the next password of the host is answered after %v", d)
		}
		ask(other, "PING", "+PONG")
		if st := r.server.Stats(); st.LoginsRefused != 2 {
			t.Errorf("%d logins are counted as refused, want 2", st.LoginsRefused)
		}
	})
}
