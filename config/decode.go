package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// origin is where a value was set; the zero origin is a default.
type origin struct {
	source       string
	line, column int
}

// decoder walks the YAML tree beside the Go value it fills. It is our own
// walk over the parser's tree, and not the library's decoder, because that
// one stops at the first problem and forgets where values stood.
type decoder struct {
	file   string            // name of the file; "" = there is none
	source string            // file or environment variable
	env    bool              // source is a variable: lines and columns mean nothing
	left   map[string]string // keys that there were, and what to do without each
	set    map[string]origin
	errs   Errors
}

func (d *decoder) fail(tk *token.Token, path, format string, args ...any) {
	o := d.origin(tk)
	d.errs = append(d.errs, &Error{
		Source: o.source, Line: o.line, Column: o.column,
		Path: path, Text: fmt.Sprintf(format, args...),
	})
}

func (d *decoder) origin(tk *token.Token) origin {
	o := origin{source: d.source}
	if !d.env && tk != nil && tk.Position != nil {
		o.line, o.column = tk.Position.Line, tk.Position.Column
	}
	return o
}

// decode fills c, a pointer to a struct of keys, from a whole YAML file and reports
// whether it is one of keys and values at all.
func (d *decoder) decode(data []byte, c any) bool {
	body, ok := d.parse(data, "")
	if !ok || body == nil {
		return ok
	}
	d.value(body, reflect.ValueOf(c).Elem(), "")
	_, isMap := body.(ast.MapNode)
	return isMap || len(d.errs) == 0
}

// bareStar is a * as a value of its own without quotes, which YAML takes for the
// beginning of an alias. As a pattern it is easily written so.
var bareStar = regexp.MustCompile(`(?m)[:,\[-][ \t]+\*[ \t]*([],}]|$)`)

// parse returns the one document in data; nil if that is empty.
func (d *decoder) parse(data []byte, path string) (ast.Node, bool) {
	if line := tooEmpty(string(data)); line > 0 {
		d.fail(&token.Token{Position: &token.Position{Line: line, Column: 1}}, path, "more than %d empty lines follow each other", maxEmpty)
		return nil, false
	}
	if tk := tooDeep(string(data)); tk != nil {
		d.fail(tk, path, "lists and mappings lie in each other more than %d deep", maxDepth)
		return nil, false
	}
	// Duplicate keys are found by the walk, with their path.
	f, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var ye yaml.Error
		if errors.As(err, &ye) {
			hint := ""
			if bareStar.Match(data) {
				hint = "; a * alone needs quotes"
			}
			d.fail(ye.GetToken(), path, "not valid YAML: %s%s", ye.GetMessage(), hint)
		} else {
			d.fail(nil, path, "not valid YAML: %v", err)
		}
		return nil, false
	}
	var body ast.Node
	for _, doc := range f.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			d.fail(doc.Start, path, "a second YAML document; keep everything in one")
			return nil, false
		}
		body = doc.Body
	}
	return body, true
}

func (d *decoder) value(n ast.Node, v reflect.Value, path string) {
	switch n := n.(type) {
	case *ast.CommentGroupNode:
		return // a file or section with nothing but comments
	case *ast.NullNode:
		if v.Kind() != reflect.Struct {
			d.fail(n.GetToken(), path, "has no value; give it one or remove the line")
		}
		return
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.DirectiveNode:
		d.fail(n.GetToken(), path, "anchors, aliases, tags and directives are not supported; write the value itself, in quotes where it begins with * or &")
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.mapping(n, v, path)
	case reflect.Slice:
		d.sequence(n, v, path)
	default:
		d.scalar(n, v, path)
	}
}

func (d *decoder) mapping(n ast.Node, v reflect.Value, path string) {
	m, ok := n.(ast.MapNode)
	if !ok {
		d.fail(n.GetToken(), path, "want a mapping of %s", keyNames(v.Type()))
		return
	}
	seen := map[string]bool{}
	for it := m.MapRange(); it.Next(); {
		tk := it.Key().GetToken()
		name := tk.Value
		sub := join(path, name)
		field, ok := fieldByName(v, name)
		switch {
		case !ok && d.whyLeft(sub) != "":
			d.fail(tk, sub, "is no key any more: %s", d.whyLeft(sub))
			d.errs[len(d.errs)-1].Left = true
		case !ok:
			d.fail(tk, sub, "unknown key; known here: %s", keyNames(v.Type()))
		case seen[name]:
			d.fail(tk, sub, "is here twice; remove one")
		default:
			seen[name] = true
			d.set[sub] = d.origin(tk)
			d.value(it.Value(), field, sub)
		}
	}
}

func (d *decoder) sequence(n ast.Node, v reflect.Value, path string) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		example := "[a, b]"
		if v.Type().Elem().Kind() == reflect.Uint32 {
			example = "[1000]"
		}
		d.fail(n.GetToken(), path, "want a list, such as %s", example)
		return
	}
	d.set[path] = d.origin(s.GetToken())
	out := reflect.MakeSlice(v.Type(), len(s.Values), len(s.Values))
	for i, e := range s.Values {
		item := fmt.Sprintf("%s[%d]", path, i)
		d.set[item] = d.origin(e.GetToken())
		d.value(e, out.Index(i), item)
	}
	if len(s.Values) == 0 {
		out = reflect.Zero(v.Type()) // as in Default
	}
	v.Set(out)
}

func (d *decoder) scalar(n ast.Node, v reflect.Value, path string) {
	text, isString := n.GetToken().Value, false
	switch n := n.(type) {
	case *ast.StringNode:
		text, isString = n.Value, true
	case *ast.LiteralNode:
		text, isString = n.Value.Value, true
	case ast.ScalarNode:
	default:
		d.fail(n.GetToken(), path, "want a single value, not a list or a mapping; within [...] text with a colon needs quotes")
		return
	}
	d.set[path] = d.origin(n.GetToken())
	switch kind := v.Kind(); {
	case kind == reflect.String && !isString:
		d.fail(n.GetToken(), path, "want a string; put quotes around %s", text)
	case isString && !writtenAsString(v):
		d.fail(n.GetToken(), path, "want %s, not the string %q", kindName(v), text)
	default:
		if err := setText(v, text); err != nil {
			d.fail(n.GetToken(), path, "%v", err)
		}
	}
}

// at is where the value at path was set. A key that is missing from a rule of a
// list is where the rule is.
func (d *decoder) at(path string) (o origin, set bool) {
	if o, set = d.set[path]; set {
		return o, true
	}
	if i := strings.LastIndexByte(path, '.'); i > 0 && path[i-1] == ']' {
		o, set = d.set[path[:i]]
	}
	return o, set
}

// fieldByName finds the field whose key is name.
func fieldByName(v reflect.Value, name string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if keyName(v.Type().Field(i)) == name {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

func keyName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}

func keyNames(t reflect.Type) string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i] = keyName(t.Field(i))
	}
	return strings.Join(names, ", ")
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// meant reports whether the value at path is one that the checks may judge: it was
// set and could be read, or it is a default of a section that has no problem.
// Any other was left behind by what could not be read, perhaps under a
// misspelt name, and what the checks would say about it only misleads.
func (d *decoder) meant(path string) bool {
	_, set := d.set[path]
	return !slices.ContainsFunc(d.errs, func(e *Error) bool {
		return e.Path == path || strings.HasPrefix(e.Path, path+"[") || !set && section(e.Path) == section(path)
	})
}

// section is the top-level key that path lies under.
func section(path string) string {
	if i := strings.IndexAny(path, ".["); i >= 0 {
		return path[:i]
	}
	return path
}

// maxDepth is how many lists and mappings may lie in each other. The parser takes memory
// by the square of that, hundreds of MiB for a file of maxFileBytes; the configuration has
// five.
const maxDepth = 16

// tooDeep returns the first token of text that lies in more than maxDepth lists and
// mappings, nil if none does. The lexer takes memory by the length of the text.
func tooDeep(text string) *token.Token {
	var d depth
	for _, tk := range lexer.Tokenize(text) {
		if d.add(tk); len(d.block)+len(d.flow) > maxDepth {
			return tk
		}
	}
	return nil
}

// maxEmpty is how many empty lines may follow each other. The lexer takes time by the square
// of that, tens of seconds for a file of maxFileBytes.
const maxEmpty = 100

// A carriage return ends a line too.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// tooEmpty returns the last line of the first maxEmpty+1 empty lines in text; 0 where there
// are fewer.
func tooEmpty(text string) int {
	n, empty := 0, 0
	for line := range strings.SplitSeq(lineEnds.Replace(text), "\n") {
		n, empty = n+1, empty+1
		if strings.Trim(line, " \t") != "" {
			empty = 0
		}
		if empty > maxEmpty {
			return n
		}
	}
	return 0
}

// depth is which lists and mappings are open at a token.
type depth struct {
	block []int        // the columns at which those begin that are written by indentation
	flow  []token.Type // what ends those in brackets and braces
}

func (d *depth) add(tk *token.Token) {
	switch tk.Type {
	case token.SequenceStartType:
		d.flow = append(d.flow, token.SequenceEndType)
	case token.MappingStartType:
		d.flow = append(d.flow, token.MappingEndType)
	case token.SequenceEndType, token.MappingEndType:
		if n := len(d.flow); n > 0 && d.flow[n-1] == tk.Type {
			d.flow = d.flow[:n-1]
		}
	case token.SequenceEntryType, token.MappingKeyType:
		d.begin(tk)
	case token.MappingValueType:
		if tk.Prev != nil && tk.Prev.Type != token.MappingKeyType { // its key
			tk = tk.Prev
		}
		d.begin(tk)
	}
}

// begin notes a key or an entry of a list; those further right have ended.
func (d *depth) begin(tk *token.Token) {
	if len(d.flow) > 0 {
		return
	}
	column := tk.Position.Column
	for n := len(d.block); n > 0 && d.block[n-1] >= column; n-- {
		d.block = d.block[:n-1]
	}
	d.block = append(d.block, column)
}

// envPrefix starts the name of every variable that is ours. All of them must
// mean something, or a misspelt override would be lost without a word.
const envPrefix = "KVSTORED_"

var (
	// clientVars are read by commands, not by the configuration.
	clientVars = []string{"KVSTORED_SOCKET", "KVSTORED_CONFIG"}
	// otherVars are the variables of demos, tests and builds that documents name.
	otherVars = []string{"KVSTORED_LLAMA", "KVSTORED_BIN", "KVSTORED_WHEEL", "KVSTORED_HISTORIES", "KVSTORED_CONVERSATIONS", "KVSTORED_SEED"}
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
