package main

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// beside are the files of the checkout that go with the program, all into one folder.
func (p *product) beside() []string {
	files := []string{"LICENSE", "NOTICE", "THIRD_PARTY", "CHANGELOG.md", p.readme}
	if p.unit != "" {
		files = append(files, p.example, p.unit)
	}
	return files
}

// entry is a file of a tar, or a folder: its name ends with a slash.
type entry struct {
	name  string
	mode  int64
	owner int
	text  []byte
}

// tar writes the files, by their names. They have the date of the commit and nobody's
// names, so that the tar is the same wherever it is made.
func (r *release) tar(w io.Writer, files []entry) error {
	t := tar.NewWriter(w)
	slices.SortFunc(files, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	for _, f := range files {
		h := tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Uid: f.owner, Gid: f.owner, Size: int64(len(f.text)), ModTime: r.date, Format: tar.FormatPAX}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := t.WriteHeader(&h); err != nil {
			return err
		}
		if _, err := t.Write(f.text); err != nil {
			return err
		}
	}
	return t.Close()
}

// archive writes the .tar.gz of a program.
func (r *release) archive(program string, extras []extra, s system) (err error) {
	folder := fmt.Sprintf("%s-%s-%s-%s", r.product.name, r.version, s.os, s.arch)
	text, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	files := []entry{{name: path.Join(folder, r.product.name), mode: 0o755, text: text}}
	for _, f := range r.beside() {
		text, err := os.ReadFile(filepath.Join(r.source, f))
		if err != nil {
			return err
		}
		files = append(files, entry{name: path.Join(folder, filepath.Base(f)), mode: 0o644, text: text})
	}
	for _, e := range extras {
		files = append(files, entry{name: path.Join(folder, e.name), mode: 0o644, text: e.text})
	}
	file, err := os.Create(r.file(s, ".tar.gz"))
	if err != nil {
		return err
	}
	defer func() {
		if e := file.Close(); err == nil {
			err = e
		}
	}()
	packed := gzip.NewWriter(file)
	if err := r.tar(packed, files); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	return packed.Close()
}

// pack compresses a file as Debian wants manual pages: without a name or a date.
func pack(w io.Writer, text []byte) error {
	packed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := packed.Write(text); err != nil {
		return err
	}
	return packed.Close()
}
