package config

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

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
