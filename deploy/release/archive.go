package main

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
)

// beside are the files of the checkout that go with the program, all into one folder.
func (p *product) beside() []string {
	files := []string{"LICENSE", "NOTICE", "THIRD_PARTY", "CHANGELOG.md", p.readme}
	if p.unit != "" {
		files = append(files, p.example, p.unit)
	}
	return files
}

// archive writes the .tar.gz of a system. Its files have the date of the commit
// and nobody's names, so that it is the same wherever it is made.
func (r *release) archive(program string, extras []extra, s system) (err error) {
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
	t := tar.NewWriter(packed)
	if err := r.fill(t, program, extras, s); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	if err := t.Close(); err != nil {
		return err
	}
	return packed.Close()
}

func (r *release) fill(t *tar.Writer, program string, extras []extra, s system) error {
	folder := fmt.Sprintf("%s-%s-%s-%s", r.product.name, r.version, s.os, s.arch)
	add := func(name string, mode int64, text []byte) error {
		err := t.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: path.Join(folder, name), Mode: mode, Size: int64(len(text)), ModTime: r.date, Format: tar.FormatPAX,
		})
		if err != nil {
			return err
		}
		_, err = t.Write(text)
		return err
	}
	text, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	if err := add(r.product.name, 0o755, text); err != nil {
		return err
	}
	for _, f := range r.beside() {
		text, err := os.ReadFile(filepath.Join(r.source, f))
		if err != nil {
			return err
		}
		if err := add(filepath.Base(f), 0o644, text); err != nil {
			return err
		}
	}
	for _, e := range extras {
		if err := add(e.name, 0o644, e.text); err != nil {
			return err
		}
	}
	return nil
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
