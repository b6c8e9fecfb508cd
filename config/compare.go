package config

import "reflect"

// Parse reads the text of a whole configuration, as [Config.Print] writes one. name is for
// errors, which are as of [Load].
func Parse(name string, text []byte, rules Rules) (Config, error) {
	c := Default()
	_, err := load(&c, name, text, nil, rules)
	return c, err
}

// Compare lists the keys for which next has another value than running, in the order of
// Config.
func Compare(running, next *Config) (changes []Change) {
	pairs(reflect.ValueOf(running).Elem(), reflect.ValueOf(next).Elem(), "", func(ch Change, _, _ reflect.Value) {
		changes = append(changes, ch)
	})
	return changes
}
