package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
)

// promptHelp explains the flags of promptFlags.
const promptHelp = `
A prompt is given as token ids (--tokens "1,2,3", or --tokens-file with ids
separated by commas or white space, or a JSON list; - for standard input), or
as --text, each byte of which stands for one token. Its last, partial chunk
counts too. Put, get and lookup meet in a space: give all of them the same
--model, --dtype, --chunk-tokens and --salt.`

// promptFlags are a prompt and its space on the command line.
type promptFlags struct {
	tokens, file, text string
	space              key.Space
}

// add defines the flags. One of those that give the prompt is required, or of
// or, which is there already.
func (p *promptFlags) add(cmd *cobra.Command, or ...string) {
	f := cmd.Flags()
	f.StringVarP(&p.tokens, "tokens", "t", "", "prompt as token ids, separated by commas")
	f.StringVarP(&p.file, "tokens-file", "f", "", "prompt as token ids in a file, - for standard input")
	f.StringVar(&p.text, "text", "", "prompt as text, one token a byte")
	one := append([]string{"tokens", "tokens-file", "text"}, or...)
	cmd.MarkFlagsMutuallyExclusive(one...)
	cmd.MarkFlagsOneRequired(one...)

	spaceFlags(cmd, &p.space)
}

// spaceFlags give a command the flags that say which space.
func spaceFlags(cmd *cobra.Command, s *key.Space) {
	f := cmd.Flags()
	*s = key.Space{World: 1, Method: key.SHA256}
	f.StringVar(&s.Model, "model", "hands-on", "model of the space")
	f.StringVar(&s.DType, "dtype", "bytes", "element type and layout of the space")
	f.IntVar(&s.ChunkTokens, "chunk-tokens", 256, "tokens in a chunk")
	f.StringVar(&s.Group, "group", "", "group of layers of a hybrid model")
	f.StringVar(&s.Salt, "salt", "", "secret that separates tenants")
}

// prompt reads the prompt. It returns its tokens too, which it borrows.
func (p *promptFlags) prompt(stdin io.Reader) (client.Prompt, []uint32, error) {
	tokens, err := p.read(stdin)
	if err == nil && len(tokens) == 0 {
		err = usage(errors.New("the prompt is empty; give at least one token"))
	}
	if err == nil {
		if serr := p.space.Validate(); serr != nil {
			err = usage(serr)
		}
	}
	if err != nil {
		return client.Prompt{}, nil, err
	}
	prompt := client.Tokens(tokens)
	prompt.SaveUnfull = true
	return prompt, tokens, nil
}

// chunks is how many chunks the prompt has.
func (p *promptFlags) chunks(tokens []uint32) int {
	return (len(tokens) + p.space.ChunkTokens - 1) / p.space.ChunkTokens
}

func (p *promptFlags) read(stdin io.Reader) ([]uint32, error) {
	switch {
	case p.text != "":
		tokens := make([]uint32, len(p.text))
		for i := range tokens {
			tokens[i] = uint32(p.text[i])
		}
		return tokens, nil
	case p.file == "-":
		b, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fmt.Errorf("read tokens: %w", err)
		}
		return parseTokens(string(b))
	case p.file != "":
		b, err := os.ReadFile(p.file)
		if err != nil {
			return nil, fmt.Errorf("read tokens: %w", err)
		}
		return parseTokens(string(b))
	}
	return parseTokens(p.tokens)
}

// parseTokens reads numbers separated by commas, white space or brackets, so
// that a JSON list will do.
func parseTokens(s string) ([]uint32, error) {
	var out []uint32
	for _, f := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(", \t\r\n[]", r) }) {
		n, err := strconv.ParseUint(f, 10, 32)
		if err != nil {
			return nil, usage(fmt.Errorf("token %q: want numbers from 0 to 4294967295, separated by commas", f))
		}
		out = append(out, uint32(n))
	}
	return out, nil
}
