package whatif

import (
	"errors"
	"fmt"
	"math"

	"github.com/kvstored/kvstored/internal/human"
)

const (
	worthSaying = 0.01   // of the tokens asked for; less is not advised
	worthChange = 0.02   // likewise, of another policy
	most        = 2. / 3 // of the gain of the largest size is enough
	sure        = 2      // standard errors that a gain has to have
	mostOff     = 0.05   // of the tokens asked for, that an estimate may differ from what was measured
)

// ErrOff is an estimate that what was measured refutes.
var ErrOff = errors.New("the estimate is not what was measured")

// Advice says which other size or policy would have hit more, or that none would; "" where
// nothing was asked for. It is [ErrOff] where the estimate for the tiers as they are is not
// what they really hit: then the others are not to be believed either.
func (r *Report) Advice() (string, error) {
	if r.AskedTokens == 0 || r.MeasuredTokens == 0 {
		return "", nil
	}
	if hit := r.now().Hit; math.Abs(hit-r.Measured) > mostOff {
		return "", fmt.Errorf("%w: %s of the tokens for the tiers as they are, which really hit %s", ErrOff, percent(hit), percent(r.Measured))
	}
	now := r.now()
	larger, gain := r.larger(now)
	policy := r.better(now)
	text := fmt.Sprintf("no size up to %v times the present one would have hit more", factors[len(factors)-1])
	if larger != nil {
		bytes, title := r.Now.DRAM.Bytes, "DRAM"
		if larger.Tier == "disk" {
			bytes, title = r.Now.Disk.Bytes, "disk"
		}
		text = fmt.Sprintf("%s more %s would have hit %s more", human.Bytes(larger.Bytes-bytes), title, percent(gain))
	}
	if policy != nil {
		text += fmt.Sprintf(", %s.policy %s %s", policy.Tier, policy.Policy, percent(policy.Hit-now.Hit))
	}
	return text, nil
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// now is the row of the tiers as they are.
func (r *Report) now() *Row {
	for i := range r.Rows {
		if r.Rows[i].Current {
			return &r.Rows[i]
		}
	}
	return &Row{}
}

// larger is the smallest size of a tier, under its own policy, that has most of the gain
// which four times its size has; nil if no tier gains enough.
func (r *Report) larger(now *Row) (best *Row, gain float64) {
	for tier, policy := range map[string]string{"cpu": r.Now.DRAM.Policy, "disk": r.Now.Disk.Policy} {
		var rows []*Row
		for i := range r.Rows {
			if row := &r.Rows[i]; row.Tier == tier && row.Policy == policy && row.Factor > 1 {
				rows = append(rows, row)
			}
		}
		for _, row := range rows {
			if g := row.Hit - now.Hit; g >= most*(rows[len(rows)-1].Hit-now.Hit) && g >= max(worthSaying, sure*row.HitError) {
				if g > gain || g == gain && tier == "cpu" {
					best, gain = row, g
				}
				break
			}
		}
	}
	return best, gain
}

// better is the best other policy of a tier of the present size; nil if none gains enough.
func (r *Report) better(now *Row) (best *Row) {
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Factor == 1 && row.Hit-now.Hit >= max(worthChange, sure*row.HitError) && (best == nil || row.Hit > best.Hit) {
			best = row
		}
	}
	return best
}
