package config

import (
	"strings"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

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
