package reload

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/key"
)

const (
	uidAlice, uidBob = 12345, 12346
	noUser           = 0 // of a connection over TCP
)

// accessRig is a daemon with all front ends, whose rules change by reloads.
type accessRig struct {
	*reloadRig
	resp, port string
}

func newAccessRig(t *testing.T) *accessRig {
	r := &accessRig{}
	r.reloadRig = newReloadRig(t, func(c *config.Config) {
		dir := filepath.Dir(c.Listen.Socket)
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		r.resp = filepath.Join(dir, "resp.sock")
		c.CPU.Capacity, c.Disk.Capacity, c.Listen.Mode = 64<<20, 0, 0o666
		c.Admin.Mode = 0o666
		c.Listen.RESP = []string{r.resp, "127.0.0.1:0"}
		c.Listen.RESPFull = config.RESPFullError
	})
	r.port = r.d.Find(`"address":"127\.0\.0\.1:(\d+)"`)
	return r
}

// rules has the daemon run with rules, as a file has them.
func (r *accessRig) rules(text string) {
	r.t.Helper()
	after, log := r.set(map[string]string{"access": text})
	if !after.LastReloadOK {
		r.t.Fatalf("refused: %s\n%s", text, log)
	}
}

// dial connects as a user, over TCP as none.
func (r *accessRig) dial(uid uintptr, path string) net.Conn {
	r.t.Helper()
	var conn net.Conn
	var err error
	if uid == noUser {
		conn, err = net.Dial("tcp", "127.0.0.1:"+r.port)
	} else {
		daemon.As(r.t, uid, func() { conn, err = net.Dial("unix", path) })
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

// respCommands are what a Redis client may ask for, and the rights each takes.
var respCommands = map[string]string{
	"GET k": "r", "MGET k l": "r", "EXISTS k": "r", "STRLEN k": "r", "TTL k": "r", "INFO": "r",
	"SET k v": "w", "SETEX n 100 v": "w", "MSET a 1 b 2": "w", "DEL x": "w",
	"PING": "", "CLIENT ID": "", "COMMAND COUNT": "", "SELECT 0": "",
}

// frontRules are rules, and what each client has by them: at Redis' socket and
// over TCP.
var frontRules = []struct {
	rules string
	resp  map[uintptr]string
}{
	{"[]", map[uintptr]string{uidAlice: "rwa", uidBob: "rwa", noUser: "rwa"}},
	{
		"[{uids: [12345], front: resp, rights: [read]}, {uids: [12346], front: resp, rights: [write]}, {front: resp, rights: [read, write]}]",
		map[uintptr]string{uidAlice: "r", uidBob: "w", noUser: "rw"},
	},
	{
		"[{uids: [12345], match: '*', rights: [read, write, admin]}, {uids: [12346], front: resp, rights: [read, write, admin]}, {front: resp, rights: [none]}]",
		map[uintptr]string{uidAlice: "", uidBob: "rwa", noUser: ""},
	},
	{
		"[{front: resp, rights: [admin, read]}, {uids: [12345, 12346], front: resp, rights: [none]}]",
		map[uintptr]string{uidAlice: "", uidBob: "", noUser: "ra"},
	},
}

// TestAccessAtFronts: at each front end of the real daemon each client may do what
// the rules give it, on a connection that was there before the rules and on a new
// one, and a client that has no right there is closed, and not let in.
func TestAccessAtFronts(t *testing.T) {
	r := newAccessRig(t)
	for _, tc := range frontRules {
		r.rules("[]")
		resp := map[uintptr]net.Conn{}
		for uid := range tc.resp {
			resp[uid] = r.dial(uid, r.resp)
		}
		r.rules(tc.rules)
		for uid, rights := range tc.resp {
			r.checkRESP(tc.rules, uid, rights, resp[uid])
			r.checkRESP(tc.rules, uid, rights, r.dial(uid, r.resp))
		}
	}
}

func (r *accessRig) checkRESP(rules string, uid uintptr, rights string, conn net.Conn) {
	r.t.Helper()
	in := bufio.NewReader(conn)
	if rights == "" {
		text, _ := io.ReadAll(in) // one that was there is only closed
		if len(text) > 0 && !strings.HasPrefix(string(text), "-NOPERM") {
			r.t.Errorf("%s: user %d is told %q", rules, uid, text)
		}
		return
	}
	for command, need := range respCommands {
		if _, err := io.WriteString(conn, array(command)); err != nil {
			r.t.Fatal(err)
		}
		reply, err := readReply(in)
		if err != nil {
			r.t.Fatalf("%s: user %d, %s: %v", rules, uid, command, err)
		}
		may := !strings.ContainsFunc(need, func(c rune) bool { return !strings.ContainsRune(rights, c) })
		if denied := strings.HasPrefix(reply, "-NOPERM"); denied == may || may && strings.HasPrefix(reply, "-") {
			r.t.Errorf("%s: user %d, %s: %q", rules, uid, command, reply)
		}
	}
}

// array is a command as clients send it.
func array(command string) string {
	words := strings.Fields(command)
	text := fmt.Sprintf("*%d\r\n", len(words))
	for _, word := range words {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	return text
}

// readReply reads one reply with all that lies in it, and returns its first line.
func readReply(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	var n int
	switch line[0] {
	case '$':
		if _, err := fmt.Sscanf(line, "$%d", &n); err == nil && n >= 0 {
			_, err = io.CopyN(io.Discard, in, int64(n)+2)
			return line, err
		}
	case '*':
		_, _ = fmt.Sscanf(line, "*%d", &n)
		for range n {
			if _, err := readReply(in); err != nil {
				return "", err
			}
		}
	}
	return line, nil
}

// TestAccessOfCommands: kvstored's own commands, as a user of its own, on the real
// daemon: what the rules deny is exit code 1 and names the missing right.
func TestAccessOfCommands(t *testing.T) {
	r := newAccessRig(t)
	r.rules("[{uids: [12345], match: 'a-*', rights: [read, write]}, {uids: [12346], match: '*', rights: [read]}, {uids: [12346], front: resp, rights: [read]}, {front: resp, rights: [none]}]")
	program := filepath.Join(filepath.Dir(r.d.Socket), "kvstored")
	self, err := os.ReadFile(daemon.Program(t)) // where every user may run it
	if err == nil {
		err = os.WriteFile(program, self, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		uid  uint32
		args string
		code int
		says string
	}{
		{uidAlice, "flush", 0, "what waited is written"},
		{uidAlice, "put --text hello --model a-1", 0, ""},
		{uidAlice, "get --text hello --model a-1", 0, ""},
		{uidBob, "get --text hello --model a-1", 0, ""},
		{uidBob, "put --text other --model a-1", 1, `denied: put takes the write right, which user 12346 lacks; see access`},
		{uidAlice, "lookup --text hello --model b-1", 1, `denied: user 12345 may not open a space of model "b-1"; see access`},
		{uidAlice, "stats", 1, "denied: stats takes the read right in every space, which user 12345 lacks; see access"},
		{uidAlice, "lookup --text never", 1, `denied: user 12345 may not open a space of model "hands-on"`},
		{uidAlice, "lookup --text never --model a-1", 0, "stored       0"},
		{uidAlice, "check --running", 1, "kvstored: config: user 12345 lacks the admin right"},
		{uidBob, "stats", 0, ""},
		{uidBob, "forget --tier cpu --yes", 1, "kvstored: forget: user 12346 lacks the admin right"},
		{12399, "stats", 1, "denied: user 12399 may not connect; no rule of access gives it a right"},
	} {
		cmd := exec.Command(program, append(strings.Fields(tt.args), "--socket", r.d.Socket)...)
		cmd.Env = []string{"HOME=/"}
		cmd.Stdin = strings.NewReader("payload")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: tt.uid, Gid: tt.uid}}
		if os.Getuid() != 0 {
			t.Skip("to be another user takes root")
		}
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.Contains(string(out), tt.says) {
			t.Errorf("user %d, %s: exit code %d, %s", tt.uid, tt.args, code, out)
		}
	}
	if st, err := r.d.Ask(t.Context()); err != nil || st.Server.Malformed != 0 || st.Server.Refused == 0 {
		t.Errorf("hellos that were denied: %d malformed, %d refused, %v", st.Server.Malformed, st.Server.Refused, err)
	}
	// The same by the Go client: it may not map the arena, and every call it has the right to works.
	sp := key.Space{Model: "a-2", World: 1, DType: "x", ChunkTokens: 16, Method: key.SHA256}
	daemon.As(t, uidAlice, func() {
		c, err := client.Dial(t.Context(), r.d.Socket, client.Options{Space: &sp})
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		prompt := client.Tokens(slices.Repeat([]uint32{7}, 32))
		if c.Mapped() || c.PutMode() != client.PutStaged {
			t.Errorf("it maps %t and puts %s", c.Mapped(), c.PutMode())
		}
		results, err := c.Store(t.Context(), prompt, client.ReserveOptions{Count: 2, Size: 100}, nil, func(i int, dst []byte) error {
			dst[0] = byte(i)
			return nil
		})
		if err != nil || len(results) != 2 {
			t.Error(results, err)
		}
		got, err := c.Get(t.Context(), prompt, client.GetOptions{})
		if err != nil || len(got) != 2 || got[1].Bytes[0] != 1 {
			t.Error(got, err)
		}
	})
}
