package metadata

import (
	"os"
	"testing"
	"testing/synctest"
)

// Files that are replaced are on the device, under their name, before anything
// relies on them: TestPowerFailure of cmd/kvstored tries it on a real file
// system.
func TestStartsAreCountedInLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{o: testOptions(t)}
		for want := range 3 {
			if failed, err := s.beginStart(); err != nil || failed != want {
				t.Fatalf("%d starts failed, want %d: %v", failed, want, err)
			}
		}
		for _, text := range []string{"9", "xxh", "\x00\x00\x00\x00", "kvstored-disk 1\n"} {
			if err := os.WriteFile(s.o.Meta.Path(StartsName), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if failed, err := s.beginStart(); err != nil || failed != 0 {
				t.Errorf("%q counts for %d failed starts: %v", text, failed, err)
			}
		}
	})
}
