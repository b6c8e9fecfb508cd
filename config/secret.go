package config

import (
	"bytes"
	"fmt"
	"os"
)

// withoutMark is text without the byte order mark that some editors write before it.
func withoutMark(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\ufeff")) }

// ReadSecret is the first line of the file that a key names; without a file it is
// empty.
func ReadSecret(key, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w; write the secret into that file, readable for this user, or take the key out", key, err)
	}
	line, _, _ := bytes.Cut(withoutMark(text), []byte("\n"))
	if line = bytes.TrimSuffix(line, []byte("\r")); len(line) == 0 {
		return "", fmt.Errorf("%s: the first line of %s is empty; write the secret there", key, path)
	}
	return string(line), nil
}
