package resp

import "testing"

func TestHuman(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0B", 1023: "1023B", 1024: "1.00K", 1536: "1.50K", 1 << 20: "1.00M", 5 << 29: "2.50G", 1 << 40: "1.00T", 1 << 52: "4096.00T",
	} {
		if got := human(n); got != want {
			t.Errorf("%d bytes are %s, want %s", n, got, want)
		}
	}
}
