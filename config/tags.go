package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// tags refuses the values that the tags of their keys do not allow. Rules of access are
// left to access, which says more of their words.
func (c *checker) tags(s reflect.Value, path string) {
	for i := range s.NumField() {
		f, v := s.Type().Field(i), s.Field(i)
		key := join(path, keyName(f))
		words, allowed := f.Tag.Get("oneof"), spanOf(f.Tag)
		switch {
		case key == "access":
		case f.Type.Kind() == reflect.Struct:
			c.tags(v, key)
		case isRules(f.Type):
			for j := range v.Len() {
				c.tags(v.Index(j), fmt.Sprintf("%s[%d]", key, j))
			}
		case words != "":
			c.oneOf(key, v.String(), strings.Split(words, ",")...)
		case allowed != span{} && !allowed.holds(v):
			c.fail(key, "want %s, not %s", allowed, oneLine(v))
		}
	}
}

// isRules reports whether a key is a list of rules.
func isRules(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

// span is what a range tag says; the zero span says nothing.
type span struct {
	zero        bool // 0 is allowed beside what follows
	above       bool // least itself is not allowed
	least, most string
}

func spanOf(tag reflect.StructTag) (r span) {
	text, zero := strings.CutPrefix(tag.Get("range"), "0,")
	text, r.above = strings.CutPrefix(text, ">")
	r.zero = zero
	r.least, r.most, _ = strings.Cut(text, "..")
	return r
}

// String is a span as a reader has it.
func (r span) String() string {
	text := r.least
	switch {
	case r.above:
		text = "above " + r.least
	case r.most == "" && r.least != "0" && r.least != "0s":
		text = "at least " + r.least
	case r.most == "":
		text = r.least + " or more"
	}
	if r.most != "" {
		text += map[bool]string{true: ", at most ", false: " to "}[r.above] + r.most
	}
	if r.zero {
		text = "0, or " + text
	}
	return text
}

// holds reports whether a value is in a span.
func (r span) holds(v reflect.Value) bool {
	if r.zero && v.IsZero() {
		return true
	}
	least := compare(v, r.least)
	return (least > 0 || least == 0 && !r.above) && (r.most == "" || compare(v, r.most) <= 0)
}

// compare compares a value with one that is written as a file has it.
func compare(v reflect.Value, text string) int {
	w := reflect.New(v.Type()).Elem()
	if err := setText(w, text); err != nil {
		panic(err) // of a tag that stands here
	}
	if v.CanFloat() {
		return cmp.Compare(v.Float(), w.Float())
	}
	return cmp.Compare(v.Int(), w.Int())
}

// clean reports whether keys are meant, and nothing is wrong with one of them by itself.
func (c *checker) clean(keys ...string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool {
		return !c.meant(key) || slices.ContainsFunc(c.errs, func(e *Error) bool { return e.Path == key })
	})
}
