package config

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// envPrefix starts the name of every variable that is ours. All of them must
// mean something, or a misspelt override would be lost without a word.
const envPrefix = "KVSTORED_"

var (
	// clientVars are read by commands, not by the configuration.
	clientVars = []string{"KVSTORED_SOCKET", "KVSTORED_CONFIG"}
	// otherVars are the variables of demos and tests that documents name.
	otherVars = []string{"KVSTORED_LLAMA", "KVSTORED_BIN", "KVSTORED_HISTORIES", "KVSTORED_CONVERSATIONS", "KVSTORED_SEED"}
	// serviceVars are the variables that Kubernetes sets in each pod for a service whose name
	// begins with kvstored. A setting has no such value as portVars have.
	serviceVars = regexp.MustCompile(`^KVSTORED_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)=`)
	portVars    = regexp.MustCompile(`^KVSTORED_(\w+_)?PORT=(tcp|udp|sctp)://`)
)

// PassedOver is the names of variables in env (in the form of os.Environ) that look like
// settings and are none, in order. A misspelt setting is not among them.
func PassedOver(env []string) (names []string) {
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if slices.Contains(otherVars, name) || serviceVars.MatchString(kv) || portVars.MatchString(kv) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// environ applies the overrides among env: KVSTORED_CPU__CAPACITY is
// cpu.capacity. Single values are taken as they are, lists are written as in
// the file.
func (d *decoder) environ(env []string, c any) {
	d.env = true
	env = slices.Clone(env)
	slices.Sort(env) // so that errors have an order
	none := append(PassedOver(env), clientVars...)
	for _, kv := range env {
		name, text, _ := strings.Cut(kv, "=")
		upper, ours := strings.CutPrefix(name, envPrefix)
		if !ours || slices.Contains(none, name) {
			continue
		}
		d.source = name
		path, v, ok := setting(c, upper)
		switch {
		case !ok && d.whyLeft(path) != "":
			d.fail(nil, path, "is no key any more: %s", d.whyLeft(path))
		case !ok:
			d.fail(nil, "", "no such setting; unset it, or name a key by its path in capitals with __ between levels, such as KVSTORED_CPU__CAPACITY")
		case v.Kind() == reflect.Struct:
			d.fail(nil, path, "is a section; set its keys one by one, such as %s__%s", name, strings.ToUpper(keyName(v.Type().Field(0))))
		default:
			d.override(v, path, text)
		}
	}
}

// setting is the key that a variable names, without its prefix, and its value in c.
func setting(c any, upper string) (path string, v reflect.Value, ok bool) {
	path = strings.ToLower(strings.ReplaceAll(upper, "__", "."))
	v, ok = reflect.ValueOf(c).Elem(), upper == strings.ToUpper(upper)
	for _, key := range strings.Split(path, ".") {
		if ok = ok && v.Kind() == reflect.Struct; ok {
			v, ok = fieldByName(v, key)
		}
	}
	return path, v, ok
}

// withoutDaemons leaves out variables that are the daemon's settings and none of c's.
func withoutDaemons(env []string, c any) []string {
	daemon := Default()
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		upper, ours := strings.CutPrefix(name, envPrefix)
		_, _, theirs := setting(&daemon, upper)
		_, _, known := setting(c, upper)
		return ours && theirs && !known
	})
}

func (d *decoder) override(v reflect.Value, path, text string) {
	if v.Kind() != reflect.Slice {
		d.set[path] = origin{source: d.source}
		if err := setText(v, text); err != nil {
			d.fail(nil, path, "%v", err)
		}
		return
	}
	switch n, ok := d.parse([]byte(text), path); {
	case ok && n == nil:
		d.fail(nil, path, "want a list, such as [a, b]; [] is the empty one")
	case ok:
		d.value(n, v, path)
	}
}
