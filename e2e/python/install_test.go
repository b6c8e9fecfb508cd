package python_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/need"
	"github.com/kvstored/kvstored/internal/human"
)

const mostWheel = 25 << 20 // bytes

// machine is how Python calls this processor.
func machine() string {
	return map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
}

// build makes the wheel or the sdist as pip would, and returns its name and files.
func build(t *testing.T, target string, env ...string) (name string, files map[string][]byte) {
	t.Helper()
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), need.Python(t, "hatchling"), "-B", "-m", "hatchling", "build", "-t", target, "-d", out)
	cmd.Dir, cmd.Env = client(), append(os.Environ(), env...)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	made, err := os.ReadDir(out)
	if err != nil || len(made) != 1 {
		t.Fatalf("%d files: %v", len(made), err)
	}
	name = filepath.Join(out, made[0].Name())
	if target == "wheel" {
		return name, unzip(t, name)
	}
	return name, untar(t, name)
}

func unzip(t *testing.T, name string) map[string][]byte {
	t.Helper()
	r, err := zip.OpenReader(name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	files := map[string][]byte{}
	for _, f := range r.File {
		text, err := fs.ReadFile(r, f.Name)
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name] = text
	}
	return files
}

func untar(t *testing.T, name string) map[string][]byte {
	t.Helper()
	packed, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	files, r := map[string][]byte{}, tar.NewReader(plain)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// sources are the files of the package with one of these endings, below a folder.
func sources(t *testing.T, below string, endings ...string) (names []string) {
	t.Helper()
	root := filepath.Join(client(), "src")
	err := fs.WalkDir(os.DirFS(root), "kvstored", func(name string, _ fs.DirEntry, err error) error {
		if slices.Contains(endings, path.Ext(name)) {
			names = append(names, path.Join(below, name))
		}
		return err
	})
	if err != nil || len(names) < 30 {
		t.Fatalf("%d sources: %v", len(names), err)
	}
	return names
}

func holds(t *testing.T, what string, files map[string][]byte, want []string) {
	t.Helper()
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
		t.Errorf("the %s holds\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestWheel: the wheel holds the package, the extension and the daemon, and nothing else; it
// runs where it says it does, and two builds are equal.
func TestWheel(t *testing.T) {
	t.Parallel()
	name, files := build(t, "wheel", "KVSTORED_WHEEL="+machine())
	number := strings.TrimPrefix(human.VersionNumber, "v")
	if base, want := filepath.Base(name), "kvstored-"+number+"-cp310-abi3-manylinux_2_17_"+machine()+".whl"; base != want {
		t.Errorf("the wheel is %s, want %s: is there a C compiler with Python's headers?", base, want)
	}
	info, program, extension := "kvstored-"+number+".dist-info/", "kvstored-"+number+".data/scripts/kvstored", "kvstored/_bulk.abi3.so"
	want := append(sources(t, "", ".py", ".pyi", ".typed"), extension, program)
	for _, file := range []string{"METADATA", "RECORD", "WHEEL", "licenses/LICENSE", "licenses/NOTICE", "licenses/THIRD_PARTY"} {
		want = append(want, info+file)
	}
	holds(t, "wheel", files, want)
	for _, line := range []string{
		"Version: " + number, "Requires-Python: >=3.10", "License-Expression: Apache-2.0", "Provides-Extra: vllm",
		"Provides-Extra: sglang", "Provides-Extra: lmcache", "Provides-Extra: llamacpp",
	} {
		if !strings.Contains(string(files[info+"METADATA"]), "\n"+line+"\n") {
			t.Errorf("METADATA has no line %q", line)
		}
	}
	for line := range strings.Lines(string(files[info+"METADATA"])) {
		if strings.HasPrefix(line, "Requires-Dist:") && !strings.Contains(line, "extra ==") {
			t.Errorf("the client needs no other package: %s", line)
		}
	}
	compiled(t, files[program], files[extension])
	first, err := os.ReadFile(name)
	if err != nil || len(first) > mostWheel {
		t.Errorf("%d bytes, %v; at most %d", len(first), err, mostWheel)
	}
	t.Run("installed", func(t *testing.T) { installed(t, name) })
	again, _ := build(t, "wheel", "KVSTORED_WHEEL="+machine())
	if second, err := os.ReadFile(again); err != nil || !bytes.Equal(first, second) {
		t.Errorf("two builds differ: %v", err)
	}
}

// compiled checks that the program needs no library, and the extension a glibc that is old.
func compiled(t *testing.T, program, extension []byte) {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	if libraries, err := f.ImportedLibraries(); err == nil && len(libraries) > 0 {
		t.Errorf("the program needs %q", libraries)
	}
	if f, err = elf.NewFile(bytes.NewReader(extension)); err != nil {
		t.Fatal(err)
	}
	symbols, err := f.ImportedSymbols()
	if err != nil || len(symbols) == 0 {
		t.Errorf("the extension has %d symbols: %v", len(symbols), err)
	}
	for _, s := range symbols {
		minor, _ := strings.CutPrefix(s.Version, "GLIBC_2.")
		if n, _ := strconv.ParseFloat(minor, 64); n > 17 {
			t.Errorf("the extension wants %s of %s; the tag promises 2.17", s.Name, s.Version)
		}
	}
}

// TestSdist: what is built from it is the client without the daemon, and says so.
func TestSdist(t *testing.T) {
	t.Parallel()
	name, files := build(t, "sdist")
	root := strings.TrimSuffix(filepath.Base(name), ".tar.gz")
	want := sources(t, root+"/src", ".py", ".pyi", ".typed", ".c")
	for _, file := range []string{".gitignore", "LICENSE", "PKG-INFO", "README.md", "hatch_build.py", "pyproject.toml"} {
		want = append(want, root+"/"+file)
	}
	holds(t, "sdist", files, want)
	again, _ := build(t, "sdist")
	first, err1 := os.ReadFile(name)
	second, err2 := os.ReadFile(again)
	if err := errors.Join(err1, err2); err != nil || !bytes.Equal(first, second) {
		t.Errorf("two builds differ: %v", err)
	}
	dir := t.TempDir()
	for file, text := range files {
		to := filepath.Join(dir, filepath.FromSlash(file))
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ env, says, tag string }{
		{"KVSTORED_WHEEL=", "the wheel is without the daemon: its sources are not here", ""},
		{"CC=none", "the wheel is without the extension: there is no C compiler", "py3-none-any"},
		{"KVSTORED_WHEEL=" + machine(), "the daemon cannot be built: its sources are not here", "-"},
		{"KVSTORED_WHEEL=amd64", "a wheel is for x86_64, aarch64 or client", "-"},
		{"KVSTORED_WHEEL=linux/arm64", "a wheel is for x86_64, aarch64 or client", "-"},
		{"KVSTORED_WHEEL=X86_64", "a wheel is for x86_64, aarch64 or client", "-"},
		{"KVSTORED_WHEEL=1", "a wheel is for x86_64, aarch64 or client", "-"},
	} {
		cmd := exec.CommandContext(t.Context(), need.Python(t, "hatchling"), "-B", "-m", "hatchling", "build", "-t", "wheel")
		cmd.Dir, cmd.Env = filepath.Join(dir, root), append(os.Environ(), c.env)
		said, err := cmd.CombinedOutput()
		if (err != nil) != (c.tag == "-") || !strings.Contains(string(said), c.says) || err == nil && !strings.Contains(string(said), c.tag) {
			t.Errorf("%s: %v\n%s", c.env, err, said)
		}
	}
}

// installed: in an empty environment, and without Go, pip takes the wheel; then the daemon
// serves, the demo plays, and the README's example stores and finds its prompt.
func installed(t *testing.T, wheel string) {
	there := filepath.Join(t.TempDir(), "venv")
	bin := filepath.Join(there, "bin")
	run := func(name string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = t.TempDir(), []string{"HOME=" + t.TempDir(), "PATH=" + bin}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := exec.CommandContext(t.Context(), need.Python(t, "venv", "ensurepip"), "-m", "venv", there).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	must := func(name string, args ...string) string {
		t.Helper()
		out, err := run(filepath.Join(bin, name), args...)
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return out
	}
	must("pip", "install", "--no-index", wheel)
	said := must("kvstored", "--version")
	if other := must("python", "-m", "kvstored", "--version"); other != said || !strings.HasPrefix(said, "kvstored "+human.VersionNumber) {
		t.Errorf("kvstored says %q, python -m kvstored %q", said, other)
	}
	if got, want := must("python", "-c", "import kvstored; print(kvstored.__version__)"), human.VersionNumber[1:]+"\n"; got != want {
		t.Errorf("the client is %q, the daemon %q", got, want)
	}
	if out, err := run(filepath.Join(bin, "kvstored"), "lab"); err == nil || !strings.Contains(out, "kvstored-lab is neither beside this program nor in PATH") {
		t.Errorf("kvstored lab: %v\n%s", err, out)
	}
	must("kvstored", "demo", "--users", "4", "--turns", "2")

	d := daemon.Folder(t)
	d.Program = filepath.Join(bin, "kvstored")
	d.Start()
	text, err := os.ReadFile(filepath.Join(client(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(text), "\n```python\n")
	example, _, _ = strings.Cut(example, "\n```\n")
	patient := "import functools, os, kvstored\nos.environ['KVSTORED_SOCKET'] = '" + d.Socket + "'\nkvstored.Client = functools.partial(kvstored.Client, timeout=60)\n"
	for _, want := range []string{"0 chunks were there\n", "4 chunks were there\n"} {
		if got := must("python", "-c", patient+example); got != want {
			t.Errorf("the README's example: %q, want %q", got, want)
		}
	}
}
