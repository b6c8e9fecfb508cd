package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// system is what a program is built for.
type system struct{ os, arch string }

func (s system) String() string { return s.os + "/" + s.arch }

// systems are those a release is made for.
var systems = []system{{"linux", "amd64"}, {"linux", "arm64"}}

// release is what a run makes, and of what.
type release struct {
	product           // that is being made
	source  string    // root of the checkout
	out     string    // folder for what is made
	version string    // without the v, such as 0.1.0
	date    time.Time // of the commit: the time of every file in an archive
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	source := flags.String("source", "../..", "the checkout")
	out := flags.String("out", "", "folder for the files; it is made, and must be empty")
	only := flags.String("only", "", "systems to build for, such as linux/amd64; all without it")
	version := flags.String("version", "", "version of the packages; that of the source without it")
	key := flags.String("key", "", "file of an ed25519 key that signs SHA256SUMS; without it nothing is signed")
	program := flags.String("program", "", "make only deb and rpm, of this program, which was built for this machine")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r, err := prepare(ctx, *source, *out, *version)
	if err != nil {
		return err
	}
	if *program != "" {
		r.product = productOf(*program)
		extras, err := r.written(ctx, *program)
		if err != nil {
			return err
		}
		return r.packages(*program, extras, system{"linux", runtime.GOARCH})
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	var signs ed25519.PrivateKey
	if *key != "" {
		if signs, err = readKey(*key); err != nil {
			return err
		}
	}
	if err := r.all(ctx, chosen); err != nil {
		return err
	}
	if err := r.sums(); err != nil || signs == nil {
		return err
	}
	return r.sign(signs)
}

// all makes every file for some systems.
func (r *release) all(ctx context.Context, systems []system) error {
	extras := make([][]extra, len(products))
	for i, p := range products {
		var err error
		r.product = p
		if extras[i], err = r.extras(ctx); err != nil {
			return err
		}
	}
	for _, s := range systems {
		if err := r.make(ctx, s, extras); err != nil {
			return fmt.Errorf("%s for %v: %w", r.product.name, s, err)
		}
	}
	return nil
}

// choose returns the systems of a list, all for an empty one.
func choose(list string) ([]system, error) {
	if list == "" {
		return systems, nil
	}
	var chosen []system
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(systems, func(s system) bool { return s.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("-only: kvstored is not released for %q; the systems are %v", name, systems)
		}
		chosen = append(chosen, systems[i])
	}
	return chosen, nil
}

// prepare checks what a release is made of, and makes its folder.
func prepare(ctx context.Context, source, out, version string) (*release, error) {
	if out == "" {
		return nil, errors.New("-out: name a folder for the files")
	}
	r := &release{version: strings.TrimPrefix(version, "v")}
	var err error
	if r.source, err = filepath.Abs(source); err != nil {
		return nil, err
	}
	if r.out, err = filepath.Abs(out); err != nil {
		return nil, err
	}
	if r.version == "" {
		if r.version, err = numberOf(r.source); err != nil {
			return nil, err
		}
	}
	stamp, err := r.command(ctx, "git", "log", "-1", "--format=%cI").Output()
	if err != nil {
		return nil, fmt.Errorf("-source: the date of %s's last commit: %w", r.source, err)
	}
	if r.date, err = time.Parse(time.RFC3339, strings.TrimSpace(string(stamp))); err != nil {
		return nil, err
	}
	r.date = r.date.UTC()
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return nil, err
	}
	if left, err := os.ReadDir(r.out); err != nil || len(left) > 0 {
		return nil, errors.Join(err, fmt.Errorf("-out: %s is not empty", r.out))
	}
	return r, nil
}

// command is a command in the checkout.
func (r *release) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = r.source
	cmd.Stderr = os.Stderr
	return cmd
}

// numberOf reads the version in the source, without its v.
func numberOf(source string) (string, error) {
	path := filepath.Join(source, "internal", "human", "human.go")
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("-source: %w", err)
	}
	_, rest, ok := strings.Cut(string(text), `const VersionNumber = "v`)
	number, _, closed := strings.Cut(rest, `"`)
	if !ok || !closed {
		return "", fmt.Errorf("%s has no version", path)
	}
	return number, nil
}

// file is a file of the release for a system.
func (r *release) file(s system, suffix string) string {
	return filepath.Join(r.out, fmt.Sprintf("%s_%s_%s_%s%s", r.product.name, r.version, s.os, s.arch, suffix))
}

// make builds all files for a system; extras are those of each product.
func (r *release) make(ctx context.Context, s system, extras [][]extra) error {
	folder, err := os.MkdirTemp("", "kvstored-release-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	for i, p := range products {
		r.product = p
		if err := r.program(ctx, filepath.Join(folder, p.name), s, extras[i]); err != nil {
			return err
		}
	}
	if err := r.image(folder, s); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return r.wheel(ctx, s)
}

// program builds a product for a system, and packs it.
func (r *release) program(ctx context.Context, program string, s system, extras []extra) error {
	if err := r.build(ctx, program, s); err != nil {
		return err
	}
	if err := r.bill(program, s); err != nil {
		return err
	}
	if err := r.packages(program, extras, s); err != nil {
		return err
	}
	return r.archive(program, extras, s)
}
