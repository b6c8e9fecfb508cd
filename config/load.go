package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
)

// maxFileBytes bounds the bytes that are parsed: the example with all its
// comments is 7 KiB, and the parser takes quadratic time in the depth of nesting.
const maxFileBytes = 64 << 10

// Rules is what the checks must know and this package may not find out.
type Rules struct {
	MemoryBytes int64  // what this process may use; 0 = do not check
	MemoryFrom  string // where that limit comes from, for the message
	UID         int    // of this process; 0 is root
}

// Load reads the file at path, applies the environment (in the form of
// os.Environ) and checks the result. An empty path means that there is no
// file: the defaults of [DefaultFor] are used then. Wrong content is reported
// as [Errors]; any other error means that the file could not be read.
func Load(path string, env []string, rules Rules) (Config, error) {
	c, _, err := loadFile(path, env, rules, false)
	return c, err
}

// loadFile is Load, or what Reload does.
func loadFile(path string, env []string, rules Rules, again bool) (c Config, d *decoder, err error) {
	c = Default()
	var data []byte
	if path == "" {
		c = DefaultFor(rules.UID, env)
	} else if data, err = read(path); err == nil && again && len(bytes.TrimSpace(data)) == 0 {
		err = errors.New(path + " is empty; to go back to all defaults write {} into it")
	}
	if err != nil {
		return Config{}, nil, fmt.Errorf("read config: %w", err)
	}
	if d, err = load(&c, path, data, env, rules); err != nil {
		return Config{}, nil, err
	}
	return c, d, nil
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
	return DecodeInto(c, path, data, env, check)
}

// DecodeInto is [LoadInto] for the text of a file.
func DecodeInto(c any, name string, data []byte, env []string, check func(meant func(key string) bool) Errors) error {
	d := &decoder{file: name, source: name, set: map[string]origin{}}
	err := d.load(c, data, withoutDaemons(env, c), check)
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

// read is the text of a configuration, or of a secret.
func read(path string) ([]byte, error) {
	data, err := ReadRegular(path, maxFileBytes)
	return bytes.TrimPrefix(data, []byte("\ufeff")), err // the mark that some editors write before it
}

// ReadRegular is what a file has, of a regular one of at most so many bytes only: a pipe
// would not say when it ends, and a device might not end.
func ReadRegular(path string, most Bytes) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err != nil {
		return nil, err
	}
	if len(data) > int(most) {
		return nil, fmt.Errorf("%s is larger than %v: is it the right file?", path, most)
	}
	return data, nil
}

// Parse reads the text of a whole configuration, as [Config.Print] writes one. name is for
// errors, which are as of [Load].
func Parse(name string, text []byte, rules Rules) (Config, error) {
	c := Default()
	_, err := load(&c, name, text, nil, rules)
	return c, err
}

// Compare lists the keys for which next has another value than running, in the order of
// Config.
func Compare(running, next *Config) (changes []Change) {
	pairs(reflect.ValueOf(running).Elem(), reflect.ValueOf(next).Elem(), "", func(ch Change, _, _ reflect.Value) {
		changes = append(changes, ch)
	})
	return changes
}

// ReadSecret is the first line of the file that a key names; without a file it is
// empty.
func ReadSecret(key, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := read(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w; write the secret into that file, readable for this user, or take the key out", key, err)
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	if line = bytes.TrimSuffix(line, []byte("\r")); len(line) == 0 {
		return "", fmt.Errorf("%s: the first line of %s is empty; write the secret there", key, path)
	}
	return string(line), nil
}

// Error is one problem with one key.
type Error struct {
	Source  string // file, or environment variable; "" = a default
	Line    int    // from 1; 0 where Source is not a file or the file does not mention the key
	Column  int    // from 1, in characters
	Path    string // such as cpu.capacity; "" where the problem is not one key's
	Text    string // what is wrong, and what to do
	Left    bool   // the key was one, and Rewrite takes it out
	Instead string // what Rewrite has for the value, which was one; "" = nothing
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Source != "" {
		b.WriteString(e.Source)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
		}
		b.WriteString(": ")
	}
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	b.WriteString(e.Text)
	return b.String()
}

// Errors is every problem found, those of the file first and in its order.
// errors.As finds both it and its first *Error.
type Errors []*Error

// Error has one line per problem.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// sorted returns es as an error: nil if there are none, so that no caller
// gets a non-nil error around an empty list.
func (es Errors) sorted() error {
	if len(es) == 0 {
		return nil
	}
	slices.SortStableFunc(es, func(a, b *Error) int {
		if (a.Line == 0) != (b.Line == 0) {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return es
}

// liveTag is on the keys that a running daemon can change, with when the new
// value counts: `reload:"at once"`.
const liveTag = "reload"

// Change is one key that two configurations have different values for.
type Change struct {
	Path string `json:"key"`     // such as log.level
	Old  string `json:"running"` // as in a file, in one line
	New  string `json:"file"`
	Live bool   `json:"-"` // Reload applies it; otherwise it takes a restart
}

// Reloaded is what a file says to a daemon that runs.
type Reloaded struct {
	// Next is what the daemon is to run with: the file's values of the keys
	// that can change while it runs, and the running values of the others.
	Next Config
	// Changes are all keys whose value in the file is not the running one, in
	// the order of Config.
	Changes []Change

	at *decoder // where the values were set
}

// Reload reads the file at path once more, as [Load] did, for a daemon that runs
// with running. Besides what Load refuses it refuses a file that is empty, as an
// editor leaves it that could not write: all would be back at its defaults.
// It also refuses one whose live keys are wrong beside the running values of
// the keys that take a restart. Wrong content is [Errors], as of Load.
func Reload(running *Config, path string, env []string, rules Rules) (*Reloaded, error) {
	c, d, err := loadFile(path, env, rules, true)
	if err != nil {
		return nil, err
	}
	r := &Reloaded{Next: *running, at: d}
	var waiting []string // keys that take a restart
	pairs(reflect.ValueOf(&r.Next).Elem(), reflect.ValueOf(&c).Elem(), "", func(ch Change, old, fresh reflect.Value) {
		if ch.Live {
			old.Set(fresh)
		} else {
			waiting = append(waiting, ch.Path)
		}
		r.Changes = append(r.Changes, ch)
	})
	if len(waiting) == 0 {
		return r, nil
	}
	mixed := d.checked(checkOf(&r.Next, rules))
	for _, e := range mixed {
		e.Text += "; this is beside what runs: " + strings.Join(waiting, ", ") + " would change only with a restart"
	}
	if err := mixed.sorted(); err != nil {
		return nil, err
	}
	return r, nil
}

// Errorf is a problem with the value of a key, as of Load: it names the place
// where the value was set.
func (r *Reloaded) Errorf(path, format string, args ...any) error {
	e := &Error{Path: path, Text: fmt.Sprintf(format, args...)}
	r.at.place(e)
	return Errors{e}
}

// pairs calls fn for every key with different values in a and b.
func pairs(a, b reflect.Value, path string, fn func(ch Change, a, b reflect.Value)) {
	for i := range a.NumField() {
		f := a.Type().Field(i)
		key, old, fresh := join(path, keyName(f)), a.Field(i), b.Field(i)
		switch {
		case f.Type.Kind() == reflect.Struct:
			pairs(old, fresh, key, fn)
		case !reflect.DeepEqual(old.Interface(), fresh.Interface()):
			fn(Change{Path: key, Old: oneLine(old), New: oneLine(fresh), Live: isLive(f)}, old, fresh)
		}
	}
}

func isLive(f reflect.StructField) bool { return f.Tag.Get(liveTag) != "" }

// oneLine is a value as a file has it.
func oneLine(v reflect.Value) string {
	if v.Kind() == reflect.Slice && v.Len() == 0 {
		return "[]"
	}
	text, err := marshal(v.Interface(), true)
	if err != nil { // of no type that there is
		return fmt.Sprint(v.Interface())
	}
	return strings.TrimSpace(string(text))
}
