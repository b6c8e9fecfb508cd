package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kvstored/kvstored/internal/version"
)

func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man FOLDER",
		Short: "Write the manual pages to a folder",
		Long: `Write the manual pages, kvstored.1 and one for each command, to a folder that is
there. Packages install them. To read one without installing it:

  kvstored man /tmp && man /tmp/kvstored-serve.1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, page := range manPages(cmd.Root()) {
				if err := os.WriteFile(filepath.Join(args[0], page.name), page.text, 0o644); err != nil {
					return fmt.Errorf("write the manual page: %w", err)
				}
			}
			return nil
		},
	}
}

// manPage is a manual page: the name of its file, and roff with the macros of
// man(7).
type manPage struct {
	name string
	text []byte
}

// manPages are the pages of a command and of all below it. They say what --help
// says.
func manPages(cmd *cobra.Command) []manPage {
	pages := []manPage{{manName(cmd) + ".1", manText(cmd)}}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			pages = append(pages, manPages(sub)...)
		}
	}
	return pages
}

// manName is the name of a command's page, such as kvstored-policy-set.
func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

func manText(cmd *cobra.Command) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"kvstored %s\" \"kvstored\"\n", strings.ToUpper(roff(manName(cmd))), roff(version.Number))
	fmt.Fprintf(&b, ".ad l\n.SH NAME\n%s \\- %s\n", roff(manName(cmd)), roff(cmd.Short))
	cmd.InitDefaultHelpFlag()
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(cmd.UseLine()))
	b.WriteString(".SH DESCRIPTION\n")
	manProse(&b, cmd.Long, cmd.Short)
	if cmd.Example != "" {
		b.WriteString(".SH EXAMPLES\n")
		manProse(&b, cmd.Example, "")
	}
	if cmd.HasAvailableLocalFlags() {
		b.WriteString(".SH OPTIONS\n")
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { manFlag(&b, f) })
	}
	manCommands(&b, cmd)
	return b.Bytes()
}

// manProse writes a text as it is laid out in --help: lines are not joined, as
// texts have tables and command lines in them.
func manProse(b *bytes.Buffer, text, otherwise string) {
	if text == "" {
		text = strings.TrimSuffix(otherwise, ".") + "."
	}
	b.WriteString(".nf\n")
	for line := range strings.Lines(text) {
		b.WriteString(roff(strings.TrimSuffix(line, "\n")) + "\n")
	}
	b.WriteString(".fi\n")
}

// manFlag writes a flag, its default and its description.
func manFlag(b *bytes.Buffer, f *pflag.Flag) {
	if f.Hidden {
		return
	}
	value, usage := pflag.UnquoteUsage(f)
	b.WriteString(".TP\n\\fB")
	if f.Shorthand != "" {
		fmt.Fprintf(b, "\\-%s\\fR, \\fB", f.Shorthand)
	}
	fmt.Fprintf(b, "\\-\\-%s\\fR", roff(f.Name))
	if value != "" {
		fmt.Fprintf(b, " \\fI%s\\fR", roff(value))
	}
	b.WriteString("\n" + roff(usage))
	if d := f.DefValue; d != "" && d != "false" && d != "0" && d != "[]" && d != "0s" {
		fmt.Fprintf(b, " (default %s)", roff(d))
	}
	b.WriteString("\n")
}

// manCommands writes the commands below a command, and the one above.
func manCommands(b *bytes.Buffer, cmd *cobra.Command) {
	var also []string
	if cmd.HasParent() {
		also = append(also, manName(cmd.Parent()))
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "help" {
				fmt.Fprintf(b, ".TP\n.BR %s (1)\n%s\n", roff(manName(sub)), roff(sub.Short))
			}
		}
	}
	if len(also) > 0 {
		b.WriteString(".SH SEE ALSO\n")
		for _, name := range also {
			fmt.Fprintf(b, ".BR %s (1)\n", roff(name))
		}
	}
}

// roff is a line of text that the formatter changes nothing in.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		return `\&` + line
	}
	return line
}
