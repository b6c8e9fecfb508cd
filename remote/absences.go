package remote

import (
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/key"
)

const (
	// absenceAge is how long a key counts as absent after the store said so:
	// what another machine stores meanwhile is not found before.
	absenceAge = 10 * time.Second
	// mostAbsences bounds the table; 24 bytes each.
	mostAbsences = 1 << 16
)

// absences are keys that were not there a moment ago, and until when, after start, that
// counts. The table never forgets more than is harmless: a request is then made that could have been
// saved.
type absences struct {
	start time.Time
	until *base.Table[key.Key, time.Duration]
}

func newAbsences() *absences {
	return &absences{time.Now(), base.NewTable[key.Key, time.Duration](mostAbsences)}
}

// add notes that k is absent now.
func (a *absences) add(k key.Key) {
	until := time.Since(a.start) + absenceAge
	a.until.Change(k, func(time.Duration) (time.Duration, bool) { return until, true })
}

// remove notes that k is there.
func (a *absences) remove(k key.Key) {
	a.until.Change(k, func(time.Duration) (time.Duration, bool) { return 0, false })
}

// has reports whether k was absent less than absenceAge ago.
func (a *absences) has(k key.Key) bool {
	return time.Since(a.start) < a.until.Find(k)
}
