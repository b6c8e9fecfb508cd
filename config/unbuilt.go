package config

import (
	"reflect"
	"strings"
)

// unbuilt lists what the file may already name but this version cannot do
// yet. Anything but the default there is an error, because a setting that has
// no effect must not be accepted in silence. Whoever builds a feature deletes
// its line.
var unbuilt = []struct{ path, feature string }{
	{"listen.resp", "the Redis front end"},
	{"listen.lm", "the LMCache front end"},
	{"spaces", "quotas and priorities of spaces"},
}

func (c *checker) unbuilt() {
	defaults := map[string]reflect.Value{}
	leaves(reflect.ValueOf(Default()), "", func(path string, v reflect.Value) { defaults[path] = v })
	leaves(reflect.ValueOf(*c.Config), "", func(path string, v reflect.Value) {
		for _, u := range unbuilt {
			if path != u.path && !strings.HasPrefix(path, u.path+".") {
				continue
			}
			if v.Kind() == reflect.Slice && v.Len() == 0 {
				continue // nil or not
			}
			if !reflect.DeepEqual(v.Interface(), defaults[path].Interface()) {
				c.fail(path, "needs %s, which this version does not have; remove the line", u.feature)
			}
		}
	})
	if n := len(c.Disk.Paths); n > 1 {
		c.fail("disk.paths", "this version has one folder at most, not %d; give one", n)
	}
}
