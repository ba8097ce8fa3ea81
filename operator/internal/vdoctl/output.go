package vdoctl

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/columns"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
)

const yamlFormat = "yaml"

// outputFlags say how a result is printed.
type outputFlags struct{ format string }

// bind binds -o, as kubectl has it, with further formats of a command.
func (o *outputFlags) bind(cmd *cobra.Command, more ...string) {
	o.format = flags.Text
	all := append([]string{flags.Text, flags.JSON, yamlFormat}, more...)
	flags.Group(cmd, flags.Output, func(fl *pflag.FlagSet) {
		fl.VarP(&flags.Choice{To: &o.format, Of: all}, "format", "o", "how to print the result: "+strings.Join(all, ", "))
	})
}

// print prints a value as JSON or YAML, or as text shows it.
func (o *outputFlags) print(w io.Writer, value any, text func(io.Writer) error) error {
	switch o.format {
	case flags.JSON:
		return command.WriteJSON(w, value)
	case yamlFormat:
		data, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	}
	return text(w)
}

// colour is how a word is shown on a terminal.
type colour string

const (
	green  colour = "32"
	yellow colour = "33"
	red    colour = "31"
	bold   colour = "1"
)

// paint colours a word where the output is a terminal and NO_COLOR is not set.
func (a *app) paint(c colour, s string) string {
	if _, plain := a.getenv("NO_COLOR"); plain || !a.terminal {
		return s
	}
	return "\x1b[" + string(c) + "m" + s + "\x1b[0m"
}

// lines prints lines, and keeps the first error. On a terminal what is wider is folded, but for
// lines that are a script.
type lines struct {
	w      io.Writer
	script bool
	err    error
}

func (l *lines) printf(format string, args ...any) {
	switch {
	case l.script:
		l.write(command.Line(format, args...))
	case l.err == nil:
		l.err = command.Say(l.w, format, args...)
	}
}

func (l *lines) write(text string) {
	if l.err == nil {
		_, l.err = io.WriteString(l.w, text)
	}
}

// command prints command lines, which stay such.
func (l *lines) command(line string) {
	l.write(command.Line("%s", line))
}

// prose prints a text that is folded wherever it goes: its first line begins with one prefix,
// and the others with another. An empty text is nothing.
func (l *lines) prose(first, rest, text string) {
	if text = strings.Join(strings.Fields(command.Printable(text)), " "); text != "" {
		l.write(columns.Hanging(command.Printable(first), rest, text, columns.Prose(l.w)) + "\n")
	}
}

// dash stands for nothing in a table.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
