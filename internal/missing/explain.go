package missing

import (
	"fmt"
	"time"

	"github.com/kvstored/kvstored/internal/human"
)

// titles are the tiers as people call them, by number.
var titles = [NoTier + 1]string{"DRAM", "disk", "the bucket", "its tier", "its tier"}

// Explain says of one missing chunk why it is not there; "" where nothing is missing.
func Explain(a *Absence, now time.Time) string {
	title := titles[min(a.Tier, NoTier)]
	switch a.Reason {
	case Nothing:
		return ""
	case Evicted:
		text := "it was evicted from " + title
		if a.Policy != "" {
			text += " by " + a.Policy
		}
		text += ago(a, now)
		if a.Since > 0 {
			text += fmt.Sprintf("; %s has evicted %s since, so about as much more would have kept it", title, human.Bytes(a.Since))
		}
		return text
	case Declined:
		why, ok := declineSayings[a.Why]
		if !ok {
			why = a.Why.String()
		}
		return fmt.Sprintf("it was not kept by %s: %s%s", title, why, ago(a, now))
	case TierOff:
		return fmt.Sprintf("it may be in %s, which is off (see the log)", title)
	case OtherSpace:
		return "it is stored in another space only"
	case NotSearched:
		return fmt.Sprintf("it is in %s, which was not searched", title)
	}
	return "it " + sayings[a.Reason.String()] + ago(a, now)
}

func ago(a *Absence, now time.Time) string {
	if a.At == 0 {
		return ""
	}
	return ", " + max(0, now.Sub(a.Time())).Truncate(time.Second).String() + " ago"
}
