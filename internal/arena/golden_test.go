package arena

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/sums.txt anew")

// The sums that other languages compare theirs with.
func TestGoldenSums(t *testing.T) {
	const path = "../../testdata/sums.txt"
	var b strings.Builder
	b.WriteString("# Bytes, and the XXH3-64 (seed 0) of so many: byte i is bits 24 to 31 of i * 2654435761.\n")
	for _, n := range append([]int{2, 3, 4, 5, 7, 8, 9, 32, 33, 64, 65, 96, 97}, edges...) {
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(i * 2654435761 >> 24)
		}
		fmt.Fprintf(&b, "%d %016x\n", n, Sum(p))
	}
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(golden) != b.String() {
		t.Errorf("%s has other sums than:\n%s", path, b.String())
	}
}
