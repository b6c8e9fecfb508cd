package config

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
)

// maxFileBytes bounds the bytes that are parsed: the example with all its
// comments is 7 KiB, and the parser takes quadratic time in the depth of nesting.
const maxFileBytes = 64 << 10

// Rules is what the checks must know and this package may not find out.
type Rules struct {
	Policies    []string // eviction policies there are; nil = do not check
	MemoryBytes int64    // what this process may use; 0 = do not check
	MemoryFrom  string   // where that limit comes from, for the message
	UID         int      // of this process; 0 is root
}

// Load reads the file at path, applies the environment (in the form of
// os.Environ) and checks the result. An empty path means that there is no
// file: the defaults of [DefaultFor] are used then. Wrong content is reported
// as [Errors]; any other error means that the file could not be read.
func Load(path string, env []string, rules Rules) (Config, error) {
	c := Default()
	var data []byte
	if path == "" {
		c = DefaultFor(rules.UID, env)
	} else {
		var err error
		if data, err = read(path); err != nil {
			return Config{}, fmt.Errorf("read config: %w", err)
		}
	}
	if _, err := load(&c, path, data, env, rules); err != nil {
		return Config{}, err
	}
	return c, nil
}

// load is Load without the file system; c holds the defaults. The decoder knows
// where the values were set.
func load(c *Config, name string, data []byte, env []string, rules Rules) (*decoder, error) {
	d := &decoder{file: name, source: name, left: left, set: map[string]origin{}}
	return d, d.load(c, data, env, checkOf(c, rules))
}

// LoadInto is [Load] for another program of ours: c points to its struct of keys, with
// the defaults in it, and check finds the problems of the values. A value that meant
// does not report is not worth a word. Variables of the daemon's settings are passed
// over.
func LoadInto(c any, path string, env []string, check func(meant func(key string) bool) Errors) error {
	data, err := read(path)
	if err != nil {
		return fmt.Errorf("read config: %w", err)
	}
	d := &decoder{file: path, source: path, set: map[string]origin{}}
	err = d.load(c, data, withoutDaemons(env, c), check)
	for _, e := range d.errs {
		_, theirs := fieldByName(reflect.ValueOf(Config{}), e.Path)
		if _, ours := fieldByName(reflect.ValueOf(c).Elem(), e.Path); theirs && !ours {
			e.Text = "this is the daemon's file; give this program one of its own, with " + keyNames(reflect.TypeOf(c).Elem())
			return Errors{e}
		}
	}
	return err
}

// checkOf checks the values in c.
func checkOf(c *Config, rules Rules) func(meant func(string) bool) Errors {
	return func(meant func(string) bool) Errors { return check(c, rules, meant) }
}

func (d *decoder) load(c any, data []byte, env []string, check func(meant func(string) bool) Errors) error {
	if !d.decode(data, c) {
		return d.errs
	}
	d.environ(env, c)
	return d.checked(check).sorted()
}

// checked is the problems of decoding, and the problems of the values.
func (d *decoder) checked(check func(meant func(string) bool) Errors) Errors {
	errs := slices.Clone(d.errs)
	for _, e := range check(d.meant) {
		d.place(e)
		errs = append(errs, e)
	}
	return errs
}

// place says where the key of e was set.
func (d *decoder) place(e *Error) {
	o, set := d.at(e.Path)
	if !set {
		o.source = d.file // a default that the file should override
	}
	e.Source, e.Line, e.Column = o.source, o.line, o.column
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("%s is larger than %v: is it a config file?", path, Bytes(maxFileBytes))
	}
	return withoutMark(data), nil
}
