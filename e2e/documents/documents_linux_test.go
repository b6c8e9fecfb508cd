package documents_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/need"
	"github.com/kvstored/kvstored/internal/test/nested"
)

// mostNotRun is how many blocks may be run by nothing.
const mostNotRun = 15

// patience is how long the commands of a page may take, builds included.
const patience = 10 * time.Minute

// fence is a fenced block of a page.
type fence struct {
	language string
	text     string
	line     int
}

// shell reports whether people would type what is in it.
func (f fence) shell() bool {
	return f.language == "sh" || f.language == "console" || f.language == "" && (strings.HasPrefix(f.text, "$ ") || strings.HasPrefix(f.text, "kvstored "))
}

// fences are the blocks of a page, without the spaces before those of a list.
func fences(t *testing.T, page string) (all []fence) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(daemon.Root(), page))
	if err != nil {
		t.Fatal(err)
	}
	var open *fence
	var indent string
	for i, line := range strings.Split(string(data), "\n") {
		before, language, ok := strings.Cut(line, "```")
		switch {
		case ok && strings.TrimSpace(before) == "" && open == nil:
			open, indent = &fence{language: language, line: i + 1}, before
		case ok && before == indent && language == "":
			all, open = append(all, *open), nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	if open != nil {
		t.Errorf("%s:%d: the block has no end", page, open.line)
	}
	return all
}

// documents are the pages that people read, from the root.
func documents(t *testing.T) (pages []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "deploy/*.md", "clients/python/*.md", "router/*.md", "router/docs/*.md", "lab/*.md", "examples/*.md"} {
		found, err := filepath.Glob(filepath.Join(daemon.Root(), pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			page, _ := filepath.Rel(daemon.Root(), path)
			pages = append(pages, page)
		}
	}
	return pages
}

// TestEveryBlock: each block of shell is in the table once, what another test runs is in
// that test's file, and few are run by nothing.
func TestEveryBlock(t *testing.T) {
	notRun, left := 0, make(map[string]bool)
	for page := range table {
		left[page] = true
	}
	for _, page := range documents(t) {
		var shell []fence
		for _, f := range fences(t, page) {
			if f.shell() {
				shell = append(shell, f)
			}
		}
		delete(left, page)
		if len(shell) != len(table[page]) {
			t.Errorf("%s has %d blocks of shell, and %d are in the table: say there what runs each", page, len(shell), len(table[page]))
			continue
		}
		for i, how := range table[page] {
			at := fmt.Sprintf("%s:%d", page, shell[i].line)
			switch {
			case how.lines:
				checkGoLines(t, at, shell[i].text)
			case how.why != "":
				notRun++
			case how.file != "":
				data, err := os.ReadFile(filepath.Join(daemon.Root(), how.file))
				if err != nil || !strings.Contains(string(data), how.text) {
					t.Errorf("%s is said to be run by %s, which has no %q: %v", at, how.file, how.text, err)
				}
			}
		}
	}
	for page := range left {
		t.Errorf("there is no %s", page)
	}
	if notRun > mostNotRun {
		t.Errorf("%d blocks are run by nothing, at most %d may be", notRun, mostNotRun)
	}
}

var (
	goLine   = regexp.MustCompile(`^go (?:-C (\S+) )?(test|run) ?(.*)$`)
	testName = regexp.MustCompile(`Test\w+`)
	ownFlag  = regexp.MustCompile(`\s-([a-z][a-z.-]*)`)
	ofGo     = []string{"run", "count", "v", "race", "list", "bench", "timeout"}
)

// checkGoLines: what lines of go test and go run name exists: the package, its tests, and
// their flags. CI builds all of them, and .ci/long runs those that take hours.
func checkGoLines(t *testing.T, at, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		m := goLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		dir := regexp.MustCompile(`(?:^| )(\.(?:/\S*)?)(?: |$)`).FindStringSubmatch(m[3])
		if dir == nil {
			t.Errorf("%s: %q names no package", at, line)
			continue
		}
		if strings.HasSuffix(dir[1], "...") {
			continue
		}
		files, _ := filepath.Glob(filepath.Join(daemon.Root(), m[1], dir[1], "*.go"))
		var source strings.Builder
		for _, file := range files {
			data, _ := os.ReadFile(file)
			source.Write(data)
		}
		if source.Len() == 0 {
			t.Errorf("%s: %q names a folder without Go", at, line)
		}
		for _, name := range testName.FindAllString(m[3], -1) {
			if !strings.Contains(source.String(), "func "+name) {
				t.Errorf("%s: %q names %s, which there is not", at, line, name)
			}
		}
		for _, flag := range ownFlag.FindAllStringSubmatch(m[3], -1) {
			if !slices.Contains(ofGo, flag[1]) && !strings.Contains(source.String(), `"`+flag[1]+`"`) {
				t.Errorf("%s: %q has -%s, which there is not", at, line, flag[1])
			}
		}
	}
}

// stage is what each page's commands are run in: the checkout as it is, what is written
// into it kept in memory, /tmp, /run and /var/lib of their own, and no network but loopback.
// $1 has room for the folders, $2 is the checkout.
const stage = `set -e
mkdir "$1/tmp" "$1/run" "$1/lib" "$1/upper"
mount -t tmpfs kvstored "$1/upper"
mkdir "$1/upper/files" "$1/upper/work"
mount -t overlay -o "lowerdir=$2,upperdir=$1/upper/files,workdir=$1/upper/work,userxattr" kvstored "$2"
mount --bind "$1/run" /run
mount --bind "$1/lib" /var/lib
exec 3<"$1/script"
export ROOM=/tmp/room
mkdir "$1/tmp/room"
cp "$1"/fence-* "$1/tmp/room"
mount --bind "$1/tmp" /tmp
ip link set lo up
cd "$2"
exec bash -e /dev/fd/3`

// prelude has words for what a reader does beside typing: begin leaves a command that does
// not end in a terminal of its own, listens waits until a port answers, and end stops the
// last such command, which must end well.
const prelude = `began=()
begin() { "$@" >>"$ROOM/log" 2>&1 & began+=($!); }
listens() { for _ in {1..1200}; do (: </dev/tcp/127.0.0.1/"$1") 2>/dev/null && return; sleep 0.1; done; echo "nothing listens at port $1"; return 1; }
end() { kill "${began[-1]}"; wait "${began[-1]}";  unset "began[-1]"; }
trap 'status=$?; set +e; kill $(jobs -p) 2>/dev/null; wait; [ $status = 0 ] || tail -n 40 "$ROOM/log" 2>/dev/null; exit $status' EXIT
`

var (
	endless = regexp.MustCompile(`(?m)^((?:\./|[A-Z_]+=\S+ )*kvstored serve(?: [^&\n]*)?|\$GATEWAY)`)
	// varying is what differs from run to run.
	varying = regexp.MustCompile(`answered in [\d.,]+ [mu]?s|\s+`)
)

// script is the commands of a page's blocks. Each output of a console block goes to a file
// of its own; wants are what the page says of it.
func script(page []fence, hows []how) (text string, wants []string) {
	var b strings.Builder
	b.WriteString(prelude)
	i := -1
	for _, f := range page {
		if !f.shell() {
			continue
		}
		i++
		if !hows[i].run {
			continue
		}
		text := f.text
		for _, r := range hows[i].replace {
			text = strings.ReplaceAll(text, r[0], r[1])
		}
		b.WriteString(hows[i].before + "\n")
		if !strings.HasPrefix(text, "$ ") {
			b.WriteString(endless.ReplaceAllString(text, "begin $1") + hows[i].after + "\n")
			continue
		}
		for _, command := range strings.Split("\n"+text, "\n$ ")[1:] {
			command, want, _ := strings.Cut(command, "\n")
			if strings.HasPrefix(command, "export ") {
				b.WriteString(command + "\n")
				continue
			}
			fmt.Fprintf(&b, "{ %s; } >$ROOM/out-%d 2>&1 || { cat $ROOM/out-%d; exit 1; }\n", command, len(wants), len(wants))
			wants = append(wants, want)
		}
		b.WriteString(hows[i].after + "\n")
	}
	return b.String(), wants
}

// TestCommandLines: what pages tell people to type does what they say.
func TestCommandLines(t *testing.T) {
	unshare := []string{"unshare", "--user", "--map-root-user", "--mount", "--net"}
	need.Program(t, "curl", "curl")
	if out, err := exec.Command(unshare[0], append(unshare[1:], "true")...).CombinedOutput(); err != nil {
		need.Missing(t, "namespaces: %v, %s; util-linux and a kernel that lets users make them bring them", err, out)
	}
	for page, hows := range table {
		if !slices.ContainsFunc(hows, func(h how) bool { return h.run }) {
			continue
		}
		t.Run(strings.ReplaceAll(page, "/", "_"), func(t *testing.T) { runPage(t, unshare, page, hows) })
	}
}

func runPage(t *testing.T, unshare []string, page string, hows []how) {
	all := fences(t, page)
	text, wants := script(all, hows)
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("script", text)
	for i, f := range all {
		write(fmt.Sprintf("fence-%d", i), f.text)
	}
	cmd := exec.CommandContext(t.Context(), unshare[0], append(unshare[1:], "bash", "-c", stage, "stage", dir, daemon.Root())...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	late := time.AfterFunc(patience, func() { _ = cmd.Cancel() })
	defer late.Stop()
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "KVSTORED_") && !strings.HasPrefix(v, "TMPDIR=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	// The examples' populated memory need not be the size that a machine of its own has.
	gateway, err := nested.Gateway.Find(t.Context())
	if err != nil {
		need.Missing(t, "%v", err)
	}
	cmd.Env = append(cmd.Env, "GATEWAY="+gateway, "KVSTORED_CPU__CAPACITY=256MiB", "PATH="+filepath.Dir(need.Python(t, "numpy"))+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	_ = cmd.Cancel() // what a script that has ended left running: go run does not end its program
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		t.Fatalf("%v\n%s\n%s", err, text, out)
	}
	for i, want := range wants {
		got, err := os.ReadFile(filepath.Join(dir, "tmp", "room", fmt.Sprintf("out-%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		if one, other := varying.ReplaceAllString(string(got), " "), varying.ReplaceAllString(want, " "); strings.TrimSpace(one) != strings.TrimSpace(other) {
			t.Errorf("it says\n%s\nand the page says\n%s", got, want)
		}
	}
}
