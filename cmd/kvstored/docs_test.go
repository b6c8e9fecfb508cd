package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// docSection is what a page of the documentation says under a heading.
func docSection(t *testing.T, page, heading string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../..", page))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(data), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no section %s", page, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// TestDocCommands: the tables of the documentation have every command, and no
// other.
func TestDocCommands(t *testing.T) {
	text := docSection(t, "docs/getting-started.md", "First steps by hand") + docSection(t, "docs/operations.md", "Administering it")
	root := rootCommand()
	for _, cmd := range root.Commands() {
		if name := cmd.Name(); name != "help" && name != "completion" && !cmd.Hidden && !regexp.MustCompile("\\| `(kvstored )?"+name+"\\b|, `"+name+"`").MatchString(text) {
			t.Errorf("the tables do not have the command %s", name)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(?:kvstored )?([a-z]+)\\b").FindAllStringSubmatch(text, -1) {
		if cmd, _, err := root.Find([]string{m[1]}); err != nil {
			t.Errorf("the tables name the command %s: %v", m[1], err)
		} else if cmd.Short == "" {
			t.Errorf("%s does not say what it does", cmd.Name())
		}
	}
	eachCommand(root, func(cmd *cobra.Command) {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: %q is no line of a list of commands", cmd.CommandPath(), cmd.Short)
		}
	})
}

// invocation is a command line of kvstored in the documentation: with flags before
// its subcommand there is none.
var invocation = regexp.MustCompile(`(?:^|[\s` + "`" + `(])(?:\./|/usr/local/bin/)?kvstored ([a-z]+)((?: (?:--?[a-z][a-z-]*|[^\s` + "`" + `|#;&)]+))*)`)

// TestDocInvocations: the commands that the documentation calls exist, and so do
// their flags.
func TestDocInvocations(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
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
