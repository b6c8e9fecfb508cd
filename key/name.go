package key

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// The reserved tags, in the order in which a name has them.
const (
	tagChunk  = reservedPrefix + "chunk"
	tagGroup  = reservedPrefix + "group"
	tagLoRA   = reservedPrefix + "lora"
	tagMethod = reservedPrefix + "method"
	tagRev    = reservedPrefix + "rev"
	tagSalt   = reservedPrefix + "salt"
)

// Format returns the name of the chunk h of space s, as the package comment
// defines it: printable ASCII without spaces. The error wraps ErrSpace, or
// ErrName for the zero hash.
func Format(s Space, h Hash) (string, error) {
	if err := s.Validate(); err != nil {
		return "", err
	}
	if h == (Hash{}) {
		return "", errZeroHash
	}
	return format(s, h), nil
}

var errZeroHash = fmt.Errorf("%w: the all-zero hash stands for the root and names no chunk", ErrName)

func format(s Space, h Hash) string {
	b := make([]byte, 0, 256)
	b = appendEscaped(b, s.Model)
	b = strconv.AppendInt(append(b, '@'), int64(s.World), 10)
	b = strconv.AppendInt(append(b, '@'), int64(s.Worker), 10)
	b = hex.AppendEncode(append(b, '@'), h[:])
	b = appendEscaped(append(b, '@'), s.DType)
	b = appendTag(b, tagChunk, strconv.Itoa(s.ChunkTokens))
	if s.Group != "" {
		b = appendTag(b, tagGroup, s.Group)
	}
	if s.LoRA != "" {
		b = appendTag(b, tagLoRA, s.LoRA)
	}
	b = appendTag(b, tagMethod, string(s.Method))
	if s.Revision != "" {
		b = appendTag(b, tagRev, s.Revision)
	}
	if d := s.saltDigest(); d != (Hash{}) {
		b = appendTag(b, tagSalt, hex.EncodeToString(d[:]))
	}
	for _, t := range s.Tags {
		b = appendTag(b, t.Name, t.Value)
	}
	return string(b)
}

// Parse reads a name that Format wrote. The space has the id of the original;
// of its salt it knows the digest only. The error wraps ErrName, and ErrSpace
// too where the name is well formed but its space is not valid.
func Parse(name string) (Space, Hash, error) {
	s, h, err := parse(name)
	if err != nil {
		return Space{}, Hash{}, err
	}
	if err := s.Validate(); err != nil {
		return Space{}, Hash{}, fmt.Errorf("%w: %w", ErrName, err)
	}
	// One chunk, one name: names are compared and used as keys by others.
	if want := format(s, h); want != name {
		return Space{}, Hash{}, fmt.Errorf("%w: %.256q is another spelling of %.256q: write that", ErrName, name, want)
	}
	return s, h, nil
}

func parse(name string) (s Space, h Hash, err error) {
	parts := strings.Split(name, "@")
	if len(parts) < 5 {
		return s, h, fmt.Errorf("%w: %.64q has %d parts: write model@world@worker@hash@dtype and tags", ErrName, name, len(parts))
	}
	if s.Model, err = unescape(parts[0]); err != nil {
		return s, h, err
	}
	if s.World, err = parseNumber("world size", parts[1]); err != nil {
		return s, h, err
	}
	if s.Worker, err = parseNumber("worker", parts[2]); err != nil {
		return s, h, err
	}
	if h, err = ParseHash(parts[3]); err != nil {
		return s, h, err
	}
	if h == (Hash{}) {
		return s, h, errZeroHash
	}
	if s.DType, err = unescape(parts[4]); err != nil {
		return s, h, err
	}
	for _, part := range parts[5:] {
		if err := s.parseTag(part); err != nil {
			return s, h, err
		}
	}
	return s, h, nil
}

// parseTag reads one tag%value into the field it stands for. A tag that comes
// twice is caught when the name is compared with its canonical spelling.
func (s *Space) parseTag(part string) error {
	rawName, rawValue, found := strings.Cut(part, "%")
	if !found {
		return fmt.Errorf("%w: tag %.64q has no value: write tag%%value", ErrName, part)
	}
	name, err := unescape(rawName)
	if err != nil {
		return err
	}
	value, err := unescape(rawValue)
	if err != nil {
		return err
	}
	switch name {
	case tagChunk:
		s.ChunkTokens, err = parseNumber(name, value)
	case tagGroup:
		s.Group = value
	case tagLoRA:
		s.LoRA = value
	case tagMethod:
		s.Method = Method(value)
	case tagRev:
		s.Revision = value
	case tagSalt:
		s.SaltDigest, err = ParseHash(value)
	default:
		s.Tags = append(s.Tags, Tag{Name: name, Value: value})
	}
	return err
}

func parseNumber(field, text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%w: %s is %.64q: write a decimal number", ErrName, field, text)
	}
	return int(n), nil
}

func appendTag(b []byte, name, value string) []byte {
	b = appendEscaped(append(b, '@'), name)
	return appendEscaped(append(b, '%'), value)
}

// appendEscaped keeps printable ASCII but the three bytes with a meaning.
func appendEscaped(b []byte, text string) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(text) {
		switch c := text[i]; {
		case c <= ' ' || c > '~' || c == '@' || c == '%' || c == '~':
			b = append(b, '~', digits[c>>4], digits[c&15])
		default:
			b = append(b, c)
		}
	}
	return b
}

func unescape(text string) (string, error) {
	if !strings.Contains(text, "~") {
		return text, nil
	}
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '~' {
			b = append(b, text[i])
			continue
		}
		if i+3 > len(text) {
			return "", fmt.Errorf("%w: %.64q ends in the middle of an escape: write ~ and two hexadecimal digits", ErrName, text)
		}
		c, err := hex.DecodeString(text[i+1 : i+3])
		if err != nil {
			return "", fmt.Errorf("%w: %.64q has the escape %q: write ~ and two hexadecimal digits", ErrName, text, text[i:i+3])
		}
		b = append(b, c...)
		i += 2
	}
	return string(b), nil
}
