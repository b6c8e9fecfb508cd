package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kvstored/kvstored/internal/human"
)

const (
	fewest  = 0.01 // shares below are not told
	most    = 3    // reasons that are told
	growing = 4    // times its size a tier is never advised to have
	enough  = 2. / 3
)

// Sentence tells where missed tokens were, and which size of a tier would have
// helped; "" while nothing was asked. asked counts all tokens, and t the missed ones; sizes
// are those of the tiers, by name. Where t.Growth is nil no size is told.
func Sentence(asked uint64, t *Totals, sizes map[string]uint64) string {
	if asked == 0 {
		return ""
	}
	missed := t.tokens()
	out := []string{percent(asked-min(missed, asked), asked) + " was hit"}
	for _, s := range shares(t)[:min(most, len(shares(t)))] {
		if float64(s.Tokens) < fewest*float64(asked) {
			break
		}
		text := fmt.Sprintf("%s %s", percent(s.Tokens, asked), said(&s))
		if s.Reason == Evicted.String() && t.Growth != nil {
			text += growth(asked, s.Tokens, t, s.Tier, sizes[s.Tier])
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// shares are the totals, the largest first. A reason with the same words for all
// tiers is one share.
func shares(t *Totals) (out []Total) {
	for _, m := range t.Missed {
		i := slices.IndexFunc(out, func(o Total) bool { return o.Reason == m.Reason && !namesTier(m.Reason) })
		if i >= 0 {
			out[i].Tokens += m.Tokens
			continue
		}
		out = append(out, m)
	}
	slices.SortStableFunc(out, func(a, b Total) int { return cmp.Compare(b.Tokens, a.Tokens) })
	return out
}

func namesTier(reason string) bool {
	return reason == Evicted.String() || strings.HasPrefix(reason, "declined_")
}

// titleOf is a tier as people call it.
func titleOf(tier string) string {
	if i := slices.Index(tierNames[:], tier); i >= 0 {
		return titles[i]
	}
	return tier
}

func percent(part, whole uint64) string {
	return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(whole))
}

// sayings are the reasons as people say them, with what helps.
var sayings = map[string]string{
	NeverStored.String(): "was new text, never stored",
	Deleted.String():     "was deleted",
	OtherSpace.String():  "is stored in another space only (`kvstored why` says what differs)",
	TierOff.String():     "is in a tier that was off (see the log)",
	Corrupt.String():     "had wrong bytes (see wrong bytes)",
	Gap.String():         "was lost by its tier",
	Pending.String():     "was still being written",
	Scanning.String():    "was asked for before the disk was read",
	NotSearched.String(): "is in tiers that were not searched",
	Distrusted.String():  "is in a distrusted space (`kvstored list spaces` names it)",
	Group.String():       "lacked the windows or states of another group",
	Timeout.String():     "came too late (prefetch.deadline)",
	Cancelled.String():   "was not waited for",
	Revoked.String():     "was revoked (lease.max_age)",
	OverBudget.String():  "was more than one client may hold (0.4 of DRAM)",
	NoSpace.String():     "had no room in DRAM to come to",
	Failed.String():      "could not be read",
	Advised.String():     "was faster computed",
}

var declineSayings = map[string]string{
	QueueFull.String():   "the writer was behind",
	WhileOff.String():    "it was off",
	NoRoom.String():      "it had no room",
	WriteBudget.String(): "its write budget was spent (disk.write_budget)",
	NotWorth.String():    "its policy had better use for the room",
	Admission.String():   "the policies had better use for the room",
	Quota.String():       "its space had all that it may (spaces)",
	Budget.String():      "its client held all that it may (0.4 of DRAM)",
	Crowded.String():     "nothing could be freed for it",
}

func said(s *Total) string {
	if text, ok := sayings[s.Reason]; ok {
		return text
	}
	title := titleOf(s.Tier)
	if why, ok := strings.CutPrefix(s.Reason, "declined_"); ok {
		return fmt.Sprintf("was not kept by %s: %s", title, cmp.Or(declineSayings[why], why))
	}
	return fmt.Sprintf("was %s from %s", s.Reason, title)
}

// growth says how much larger a tier had to be, where a bearable size is enough for
// most of the tokens it has evicted, or for any at all.
func growth(asked, evicted uint64, t *Totals, tier string, size uint64) string {
	var best Growth
	for _, g := range t.Growth {
		if g.Tier != tier || size > 0 && g.Bytes > growing*size {
			continue
		}
		if best = g; float64(g.Tokens) >= enough*float64(evicted) {
			break
		}
	}
	if float64(best.Tokens) < fewest*float64(asked) {
		return fmt.Sprintf(", most of it too long ago for %d times as much %s", growing, titleOf(tier))
	}
	return fmt.Sprintf(": %s more %s would have hit %s", human.Bytes(best.Bytes), titleOf(tier), percent(best.Tokens, asked))
}

// titles are the tiers as people call them, by number.
var titles = [noTier + 1]string{"DRAM", "disk", "the bucket", "its tier", "its tier"}

// Explain says of one missing chunk why it is not there; "" where nothing is missing.
func Explain(a *Absence, now time.Time) string {
	title := titles[min(a.Tier, noTier)]
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
		why := a.Why.String()
		return fmt.Sprintf("it was not kept by %s: %s%s", title, cmp.Or(declineSayings[why], why), ago(a, now))
	case TierOff:
		return fmt.Sprintf("it may be in %s, which is off (see the log)", title)
	case OtherSpace:
		return "it is stored in another space only"
	case NeverStored:
		return "this text is new: it was never stored"
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
