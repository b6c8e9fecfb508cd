package main

import (
	"archive/tar"
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

var reproducible = flag.String("reproducible", "", "systems, such as linux/amd64, that TestReproducible compiles everything for twice: minutes each")

func TestNumberOfThisSource(t *testing.T) {
	number, err := numberOf("../..")
	if err != nil || !regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`).MatchString(number) {
		t.Errorf("the version of this source is %q, %v", number, err)
	}
}

// Two clones of a commit in different folders make the same files, byte for byte, of
// programs that were compiled anew for each, on machines with different names.
func TestReproducible(t *testing.T) {
	if *reproducible == "" {
		t.Skip("-reproducible")
	}
	sums := map[string][]byte{}
	for _, dir := range []string{"a", "another/folder, deeper"} {
		source, out := filepath.Join(t.TempDir(), dir), filepath.Join(t.TempDir(), "out")
		if text, err := exec.CommandContext(t.Context(), "git", "clone", "-q", "../..", source).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		t.Setenv("GOCACHE", filepath.Join(t.TempDir(), "cache"))
		if err := run(t.Context(), []string{"-source", source, "-out", out, "-only", *reproducible}); err != nil {
			t.Fatal(err)
		}
		check(t, out, sums)
		images, err := filepath.Glob(filepath.Join(out, "kvstored-image_*_linux_"+runtime.GOARCH+".tar"))
		if err != nil || len(images) != 1 {
			t.Fatalf("%d images for this machine: %v", len(images), err)
		}
		runImage(t, images[0])
	}
}

// runImage has each program of an image say its version, as the image's user, in a root
// that has nothing else.
func runImage(t *testing.T, name string) {
	t.Helper()
	root, image := t.TempDir(), readImage(t, name)
	plain := mutate.Extract(image)
	defer plain.Close()
	files := untar(t, plain, root)
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532:65532" || config.Config.Entrypoint[0] != "/kvstored" || files["var/lib/kvstored"] != imageUser || files["etc/kvstored/kvstored.yaml"] != 0 {
		t.Errorf("%+v, owners %v", config.Config, files)
	}
	if os.Geteuid() != 0 {
		t.Log("without root the programs of the image are not run")
		return
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range products {
		cmd := exec.CommandContext(t.Context(), "/"+p.name, "--version")
		cmd.Path, cmd.Dir, cmd.Env = "/"+p.name, "/", config.Config.Env
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: imageUser, Gid: imageUser}}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), p.name+" v") {
			t.Errorf("%s of the image: %v\n%s", p.name, err, out)
		}
	}
}

// readImage is the image of an OCI layout in a tar.
func readImage(t *testing.T, name string) v1.Image {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	dir := t.TempDir()
	untar(t, file, dir)
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%+v, %v", manifest, err)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// untar returns the owners of the files.
func untar(t *testing.T, r io.Reader, dir string) map[string]int {
	t.Helper()
	owners := map[string]int{}
	for plain := tar.NewReader(r); ; {
		h, err := plain.Next()
		if errors.Is(err, io.EOF) {
			return owners
		}
		if err != nil {
			t.Fatal(err)
		}
		owners[h.Name] = h.Uid
		to := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(to, 0o755)
		} else {
			text, readErr := io.ReadAll(plain)
			err = errors.Join(readErr, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, h.FileInfo().Mode()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestImage: an image of small files that stand in for the programs.
func TestImage(t *testing.T) {
	r := &release{source: "../..", out: t.TempDir(), version: "1.2.3", date: time.Unix(1e9, 0).UTC()}
	s := system{"linux", "arm64"}
	folder := t.TempDir()
	var first []byte
	for range 2 {
		for _, r.product = range products {
			for _, name := range []string{filepath.Join(folder, r.product.name), r.file(s, ".cdx.json")} {
				if err := os.WriteFile(name, []byte(r.product.name), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := r.image(folder, s); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(r.out, "kvstored-image_1.2.3_linux_arm64.tar")
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if first != nil && !bytes.Equal(first, text) {
			t.Error("two images of the same files differ")
		}
		first, folder = text, t.TempDir()
		image := readImage(t, name)
		plain := mutate.Extract(image)
		files := slices.Sorted(maps.Keys(untar(t, plain, t.TempDir())))
		plain.Close()
		want := []string{
			"etc/kvstored/kvstored.yaml", "etc/ssl/certs/ca-certificates.crt", "kvstored", "kvstored-lab", "kvstored-router", "run/kvstored", "tmp",
			documents + "LICENSE", documents + "NOTICE", documents + "THIRD_PARTY",
			documents + "kvstored-lab.cdx.json", documents + "kvstored-router.cdx.json", documents + "kvstored.cdx.json", "var/lib/kvstored",
		}
		if !slices.Equal(files, want) {
			t.Errorf("the image has\n%q, want\n%q", files, want)
		}
		if n := bytes.Count(roots(), []byte("BEGIN CERTIFICATE")); n < 80 {
			t.Errorf("%d roots", n)
		}
	}
}

// TestKey: what is no key says so, and what is one signs the sums.
func TestKey(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	written := func(kind string, der []byte, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	pkcs := func(key any) string {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		return written("PRIVATE KEY", der, err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	for name, says := range map[string]string{
		"nowhere": "no such file", t.TempDir(): "is a directory", "sign.go": "has no PEM of a private key",
		written("PUBLIC KEY", der, err):               "has no PEM of a private key",
		written("PRIVATE KEY", []byte("no key"), nil): "asn1",
		pkcs(other): "is a *ecdsa.PrivateKey",
	} {
		if _, err := readKey(name); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", name, err, says)
		}
	}
	key, err := readKey(pkcs(private))
	if err != nil {
		t.Fatal(err)
	}
	r := &release{out: t.TempDir()}
	sums := filepath.Join(r.out, "SHA256SUMS")
	if err := errors.Join(os.WriteFile(sums, []byte("sums"), 0o600), r.sign(key)); err != nil {
		t.Fatal(err)
	}
	if sig, err := os.ReadFile(sums + ".sig"); err != nil || !ed25519.Verify(public, []byte("sums"), sig) {
		t.Errorf("the signature does not fit: %v", err)
	}
}

// check compares the files with those of the run before.
func check(t *testing.T, out string, before map[string][]byte) {
	t.Helper()
	first := len(before) == 0
	files, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(out, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		kinds[filepath.Ext(f.Name())]++
		if first {
			before[f.Name()] = data
			t.Logf("%10d %s", len(data), f.Name())
		} else if !bytes.Equal(before[f.Name()], data) {
			t.Errorf("%s differs: %d and %d bytes", f.Name(), len(before[f.Name()]), len(data))
		}
		if filepath.Ext(f.Name()) == ".rpm" && bytes.Contains(data, []byte("\x00"+host+"\x00")) {
			t.Errorf("%s has the name of this machine, %s", f.Name(), host)
		}
	}
	if !first && len(files) != len(before) {
		t.Errorf("%d files, and %d before", len(files), len(before))
	}
	each := strings.Count(*reproducible, "/")
	if kinds[".whl"] != each || kinds[".tar"] != each {
		t.Errorf("files by kind: %v", kinds)
	}
	if all := len(products) * each; kinds[".deb"] != all || kinds[".rpm"] != all || kinds[".gz"] != all || kinds[".json"] != all {
		t.Errorf("files by kind: %v", kinds)
	}
	cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	cmd.Dir = out
	if text, err := cmd.CombinedOutput(); err != nil || strings.Count(string(text), ": OK") != len(files)-1 {
		t.Errorf("SHA256SUMS: %v\n%s", err, text)
	}
}
