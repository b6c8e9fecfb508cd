package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// build makes the program: static, without debug information and without the
// paths of this machine.
func (r *release) build(ctx context.Context, program string, s system) error {
	cmd := r.command(ctx, "go", "build", "-trimpath", "-ldflags=-s -w -buildid=", "-o", program, ".")
	cmd.Dir = filepath.Join(r.source, r.main)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+s.os, "GOARCH="+s.arch, "GOFLAGS=-mod=readonly", "GOWORK=off")
	if s.arch == "amd64" {
		cmd.Env = append(cmd.Env, "GOAMD64=v1") // processors without AVX2 as well; hot loops look for it themselves
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build: %w", err)
	}
	return nil
}

// extra is a file that goes with the program.
type extra struct {
	name string // its path in an archive
	text []byte
}

// extras are the manual pages and the completions of shells; a program for this
// machine writes the latter.
func (r *release) extras(ctx context.Context) ([]extra, error) {
	folder, err := os.MkdirTemp("", "kvstored-release-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	program := filepath.Join(folder, r.product.name)
	cmd := r.command(ctx, "go", "build", "-o", program, ".")
	cmd.Dir = filepath.Join(r.source, r.main)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("build: %w", err)
	}
	return r.written(ctx, program)
}

// written are the manual pages, and the completions, which a program of this machine
// writes.
func (r *release) written(ctx context.Context, program string) (files []extra, err error) {
	if r.manual {
		if files, err = r.pages(ctx); err != nil {
			return nil, err
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		text, err := r.command(ctx, program, "completion", shell).Output()
		if err != nil {
			return nil, fmt.Errorf("completion of %s: %w", shell, err)
		}
		files = append(files, extra{"completion/" + r.product.name + "." + shell, text})
	}
	return files, nil
}

// pages are the manual pages, which a test of the commands writes.
func (r *release) pages(ctx context.Context) ([]extra, error) {
	folder, err := os.MkdirTemp("", "kvstored-man-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	cmd := r.command(ctx, "go", "test", "./"+r.main, "-count=1", "-run=^TestMan$", "-man="+folder)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", fmt.Sprint("SOURCE_DATE_EPOCH=", r.date.Unix()))
	if out, err := cmd.Output(); err != nil {
		return nil, fmt.Errorf("manual pages: %w\n%s", err, out)
	}
	pages, err := os.ReadDir(folder) // sorted by name
	if err != nil {
		return nil, err
	}
	var files []extra
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(folder, page.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, extra{"man/" + page.Name(), text})
	}
	return files, nil
}

// sums writes SHA256SUMS, as sha256sum -c reads it.
func (r *release) sums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range entries {
		f, err := os.Open(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		f.Close()
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", h.Sum(nil), e.Name()))
	}
	sort.Slice(lines, func(i, j int) bool { return lines[i][66:] < lines[j][66:] })
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(strings.Join(lines, "")), 0o644)
}
