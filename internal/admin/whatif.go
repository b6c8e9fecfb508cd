package admin

import "github.com/kvstored/kvstored/internal/whatif"

// whatIf is the last report of what other sizes and policies would hit.
func (c *call) whatIf(*None) (*whatif.Report, error) {
	if err := c.mayEstimate(); err != nil {
		return nil, err
	}
	r := c.o.WhatIf.Report()
	return &r, nil
}

// makeWhatIf makes one.
func (c *call) makeWhatIf(*None) (*whatif.Report, error) {
	if err := c.mayEstimate(); err != nil {
		return nil, err
	}
	r, err := c.o.WhatIf.Make(c.ctx)
	return &r, err
}

func (c *call) mayEstimate() error {
	if c.o.WhatIf != nil {
		return nil
	}
	e := refuse(NotFound, "nothing is estimated: admin.what_if is off")
	e.Do = "set admin.what_if and restart the daemon"
	return e
}
