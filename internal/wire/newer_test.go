package wire

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// hexOf is a frame as a file has it, without comments but the first.
func hexOf(comment string, frame []byte) string {
	var out strings.Builder
	out.WriteString("# " + comment + "\n")
	for ; len(frame) > 0; frame = frame[min(16, len(frame)):] {
		for i, b := range frame[:min(16, len(frame))] {
			if i > 0 {
				out.WriteByte(' ')
			}
			const digits = "0123456789abcdef"
			out.WriteByte(digits[b>>4])
			out.WriteByte(digits[b&15])
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// TestNewerDaemon: with the additions of a newer daemon a reply or a push means the same
// here. The frames are in testdata/wire/newer, for clients in other languages.
func TestNewerDaemon(t *testing.T) {
	s := readSchema(t)
	for _, g := range golden {
		if g.h.Kind == KindRequest {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			frame := s.Newer(readGolden(t, g.name))
			text := hexOf("the reply of "+g.name+".hex as a newer daemon may send it", frame)
			path := filepath.Join(goldenDir, "newer", g.name+".hex")
			if *update {
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if file, err := os.ReadFile(path); err != nil || string(file) != text {
				t.Errorf("the file differs: %v", err)
			}
			got := reflect.New(reflect.TypeOf(g.m).Elem()).Interface().(Message)
			if err := got.Decode(frame[HeaderBytes:]); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, g.m) {
				t.Errorf("decoded\n%+v, want\n%+v", got, g.m)
			}
		})
	}
}
