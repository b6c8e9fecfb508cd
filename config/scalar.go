package config

import (
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// The scalar types that are written in a form of their own.
var (
	bytesType    = reflect.TypeFor[Bytes]()
	durationType = reflect.TypeFor[time.Duration]()
	modeType     = reflect.TypeFor[os.FileMode]()
)

// writtenAsString reports whether v may stand in quotes.
func writtenAsString(v reflect.Value) bool {
	switch v.Type() {
	case bytesType, durationType, modeType:
		return true
	}
	return v.Kind() == reflect.String
}

func kindName(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number, such as 0.75"
	}
	return "a whole number"
}

// setText parses text by v's type and sets v.
func setText(v reflect.Value, text string) error {
	switch v.Type() {
	case bytesType:
		n, err := ParseBytes(text)
		v.SetInt(int64(n))
		return err
	case durationType:
		return setDuration(v, text)
	case modeType:
		return setMode(v, text)
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
		return nil
	case reflect.Bool:
		v.SetBool(text == "true")
		if text != "true" && text != "false" {
			return fmt.Errorf("want true or false, not %q", text)
		}
		return nil
	case reflect.Int:
		n, err := strconv.ParseInt(text, 10, 64)
		v.SetInt(n)
		return wrongNumber(err, "a whole number", text)
	case reflect.Uint32:
		n, err := strconv.ParseUint(text, 10, 32)
		v.SetUint(n)
		return wrongNumber(err, "a whole number from 0 to 4294967295", text)
	case reflect.Float64:
		return setFloat(v, text)
	}
	panic("config: no text form for " + v.Type().String()) // a field of a new type: it gets its case here
}

func setDuration(v reflect.Value, text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is not a duration; write a number with a unit, such as 25us, 10s or 5m", text)
	}
	v.SetInt(int64(d))
	return nil
}

func setMode(v reflect.Value, text string) error {
	n, err := strconv.ParseUint(text, 8, 32)
	if err != nil || n > 0o777 {
		return fmt.Errorf(`%q is not a file mode; write it in octal, such as "0660"`, text)
	}
	v.SetUint(n)
	return nil
}

func setFloat(v reflect.Value, text string) error {
	n, err := strconv.ParseFloat(text, 64)
	if err == nil && (math.IsNaN(n) || math.IsInf(n, 0)) {
		err = strconv.ErrRange
	}
	v.SetFloat(n)
	return wrongNumber(err, "a number, such as 0.75", text)
}

func wrongNumber(err error, want, text string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("want %s, not %q", want, text)
}

// Bytes is a size. It is written as a whole number with a unit, binary (KiB,
// MiB, GiB, TiB) or decimal (KB, MB, GB, TB), or as a plain number of bytes.
type Bytes int64

// sizeUnits is in the order in which String tries them: a size is printed in
// the largest binary unit that divides it, else in the largest decimal one.
var sizeUnits = []struct {
	name string
	n    int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3},
}

// ParseBytes is the inverse of String. It refuses fractions and units that
// leave open which power is meant.
func ParseBytes(s string) (Bytes, error) {
	digits, unit := s, int64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			digits, unit = rest, u.n
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n > uint64(math.MaxInt64/unit) {
		return 0, fmt.Errorf("%q is not a size; write a whole number with a unit, such as 512MiB, 4GiB or 64KB", s)
	}
	return Bytes(int64(n) * unit), nil
}

// String prints the size so that ParseBytes reads it back exactly.
func (b Bytes) String() string {
	for _, u := range sizeUnits {
		if b != 0 && int64(b)%u.n == 0 {
			return strconv.FormatInt(int64(b)/u.n, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// Print writes the configuration as YAML that Load reads back to an equal
// one. Nothing in it is secret: credentials have no key.
func (c *Config) Print(w io.Writer) error {
	data, err := marshal(c, false)
	if err != nil {
		return fmt.Errorf("print config: %w", err)
	}
	_, err = w.Write(data)
	return err
}

// marshal writes a value as a file has it, within one line if flow is set.
func marshal(v any, flow bool) ([]byte, error) {
	return yaml.MarshalWithOptions(v,
		yaml.Flow(flow),
		yaml.CustomMarshaler(func(b Bytes) ([]byte, error) { return []byte(b.String()), nil }),
		yaml.CustomMarshaler(func(d time.Duration) ([]byte, error) { return []byte(durationText(d)), nil }),
		yaml.CustomMarshaler(func(m os.FileMode) ([]byte, error) { return []byte(strconv.Quote(modeText(m))), nil }),
	)
}

func modeText(m os.FileMode) string { return fmt.Sprintf("%04o", uint32(m)) }

// durationText is d.String as a person writes it: 5m, not 5m0s, and in ASCII.
func durationText(d time.Duration) string {
	s := strings.ReplaceAll(d.String(), "µ", "u")
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
