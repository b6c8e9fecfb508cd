package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var updatePage = flag.Bool("update", false, "write the table of docs/reference/commands.md anew")

const (
	commandsPage  = "../../docs/reference/commands.md"
	commandsBegin = "<!-- Made from the commands by `go test ./cmd/kvstored -run TestCommandsPage -update`. Edit them, not what follows. -->\n"
)

// explained are flags that the page explains once, for every command.
var explained = []string{"admin-socket", "chunk-tokens", "dtype", "group", "help", "json", "model", "salt", "socket", "text", "tokens", "tokens-file"}

// TestCommandsPage: the table of docs/reference/commands.md has every command, with its
// flags and its line. Run with -update to write it anew.
func TestCommandsPage(t *testing.T) {
	var table strings.Builder
	table.WriteString("\n| command | does | flags |\n|---|---|---|\n")
	root := rootCommand()
	eachCommand(root, func(cmd *cobra.Command) {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: %q is no line of a list of commands", cmd.CommandPath(), cmd.Short)
		}
		if !cmd.HasParent() || cmd.HasSubCommands() || cmd.Hidden || cmd.Name() == "help" || strings.Contains(cmd.CommandPath(), "completion") {
			return
		}
		var flags []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains(explained, f.Name) {
				flags = append(flags, "`--"+f.Name+"`")
			}
		})
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", strings.TrimPrefix(cmd.CommandPath(), "kvstored "), cmd.Short, strings.Join(flags, " "))
	})
	data, err := os.ReadFile(commandsPage)
	if err != nil {
		t.Fatal(err)
	}
	intro, old, ok := strings.Cut(string(data), commandsBegin)
	if !ok {
		t.Fatalf("%s does not have the line %s", commandsPage, commandsBegin)
	}
	if *updatePage {
		if err := os.WriteFile(commandsPage, []byte(intro+commandsBegin+table.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != table.String() {
		t.Errorf("%s is not of this program; write it anew: go test ./cmd/kvstored -run TestCommandsPage -update", commandsPage)
	}
}

// invocation is a command line of kvstored in the documentation: with flags before
// its subcommand there is none.
var invocation = regexp.MustCompile(`(?:^|[\s` + "`" + `(])(?:\./|/usr/local/bin/)?kvstored ([a-z]+)((?: (?:--?[a-z][a-z-]*|[^\s` + "`" + `|#;&)]+))*)`)

// TestDocInvocations: the commands that the documentation calls exist, and so do
// their flags.
func TestDocInvocations(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "*/*.md"} {
		found, err := filepath.Glob("../../docs/" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	pages = append(pages, "../../README.md", "../../deploy/README.md", "../../CONTRIBUTING.md", "../../SECURITY.md", "../../CHANGELOG.md")
	calls := 0
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range codeOf(string(data)) {
			for _, m := range invocation.FindAllStringSubmatch(code, -1) {
				calls++
				checkInvocation(t, filepath.Base(page), m[1], strings.Fields(m[2]))
			}
		}
	}
	if calls < 50 {
		t.Errorf("only %d calls were found", calls)
	}
}

// codeOf are the pieces of code of a page: in the line, and in fenced blocks line
// by line.
func codeOf(page string) []string {
	var code []string
	for i, part := range strings.Split(page, "\n```") {
		if i%2 == 1 {
			code = append(code, strings.Split(part, "\n")[1:]...)
			continue
		}
		for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(part, -1) {
			code = append(code, m[1])
		}
	}
	return code
}

func checkInvocation(t *testing.T, page, name string, args []string) {
	t.Helper()
	cmd, _, err := rootCommand().Find(append([]string{name}, args...))
	if err != nil || cmd.Name() == "kvstored" {
		t.Errorf("%s calls kvstored %s, which there is not", page, name)
		return
	}
	if cmd.DisableFlagParsing {
		return // they are another program's, which tests them
	}
	for _, arg := range args {
		flag, ok := strings.CutPrefix(arg, "--")
		flag, _, _ = strings.Cut(strings.Trim(flag, ".,:"), "=")
		if ok && flag != "" && flag != "help" && cmd.Flags().Lookup(flag) == nil && cmd.InheritedFlags().Lookup(flag) == nil {
			t.Errorf("%s calls kvstored %s with --%s, which it does not have", page, name, flag)
		}
	}
}

func eachCommand(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, sub := range cmd.Commands() {
		eachCommand(sub, f)
	}
}
