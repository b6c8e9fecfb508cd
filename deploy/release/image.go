package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	imageUser = 65532 // of the daemon in the image, and its group
	documents = "usr/share/doc/kvstored/"
)

// image writes the container image of a system, an OCI layout in a tar.
func (r *release) image(folder string, s system) error {
	image, err := r.configured(folder, s)
	if err != nil {
		return err
	}
	dir := filepath.Join(folder, "image")
	made, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	names := map[string]string{ // for skopeo and podman; for docker and ctr
		"org.opencontainers.image.ref.name": r.version,
		"io.containerd.image.name":          "docker.io/library/kvstored:" + r.version,
	}
	if err := made.AppendImage(image, layout.WithPlatform(v1.Platform{OS: s.os, Architecture: s.arch}), layout.WithAnnotations(names)); err != nil {
		return err
	}
	var files []entry
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		files = append(files, entry{name: name, mode: 0o644, text: text})
		return err
	})
	if err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(r.out, fmt.Sprintf("kvstored-image_%s_%s_%s.tar", r.version, s.os, s.arch)))
	if err != nil {
		return err
	}
	defer file.Close()
	if err := r.tar(file, files); err != nil {
		return err
	}
	return file.Close()
}

// configured is the image: one layer, and a daemon that does not run as root.
func (r *release) configured(folder string, s system) (v1.Image, error) {
	files, err := r.rootFiles(folder, s)
	if err != nil {
		return nil, err
	}
	var plain bytes.Buffer
	if err := r.tar(&plain, files); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(plain.Bytes())), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	date := v1.Time{Time: r.date}
	image, err := mutate.Append(
		mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		mutate.Addendum{Layer: layer, History: v1.History{CreatedBy: "deploy/release", Created: date}},
	)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = s.os, s.arch, date
	config.Config = v1.Config{
		User: fmt.Sprintf("%d:%d", imageUser, imageUser), Env: []string{"PATH=/"}, StopSignal: "SIGTERM",
		Entrypoint: []string{"/kvstored"}, Cmd: []string{"serve", "--config", "/etc/kvstored/kvstored.yaml"},
		Volumes: map[string]struct{}{"/run/kvstored": {}, "/var/lib/kvstored": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title": "kvstored", "org.opencontainers.image.version": r.version,
			"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.source": "https://github.com/kvstored/kvstored",
		},
	}
	return mutate.ConfigFile(image, config)
}

// rootFiles are all that is in the image: the programs, with their bills of materials and
// licences, the defaults as the daemon's configuration, the roots that HTTPS is checked
// with, and the folders that the daemon writes.
func (r *release) rootFiles(folder string, s system) ([]entry, error) {
	files := []entry{
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, text: roots()},
		{name: "run/kvstored/", mode: 0o755, owner: imageUser},
		{name: "var/lib/kvstored/", mode: 0o755, owner: imageUser},
		{name: "tmp/", mode: 0o1777},
	}
	from := map[string]string{"etc/kvstored/kvstored.yaml": filepath.Join(r.source, "kvstored.example.yaml")}
	for _, name := range []string{"LICENSE", "NOTICE", "THIRD_PARTY"} {
		from[documents+name] = filepath.Join(r.source, name)
	}
	for _, r.product = range products {
		from[documents+r.product.name+".cdx.json"] = r.file(s, ".cdx.json")
		from[r.product.name] = filepath.Join(folder, r.product.name)
	}
	for name, path := range from {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		mode := int64(0o644)
		if filepath.Dir(name) == "." {
			mode = 0o755
		}
		files = append(files, entry{name: name, mode: mode, text: text})
	}
	return files, nil
}

// roots are the certificates of the authorities that Mozilla trusts without conditions,
// those of the module in go.mod and of no machine.
func roots() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			text.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return text.Bytes()
}
