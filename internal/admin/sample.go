package admin

import "github.com/kvstored/kvstored/internal/sample"

// sample is what clients have asked for, for the lab to play.
func (c *call) sample(*None) (*sample.Sample, error) {
	if c.o.Sample == nil {
		e := refuse(NotFound, "no sample is kept: admin.what_if is off")
		e.Do = "set admin.what_if and restart the daemon"
		return nil, e
	}
	return c.o.Sample.Sample(), nil
}
