package config

import (
	"fmt"
	"reflect"
	"strings"
)

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
