package vdoctl

import (
	"cmp"
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/columns"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
)

const yamlFormat = "yaml"

// bindFormat binds -o, like kubectl's, with further formats of a command.
func (a *app) bindFormat(cmd *cobra.Command, more ...string) {
	a.format = flags.Text
	all := append([]string{flags.Text, flags.JSON, yamlFormat}, more...)
	flags.Group(cmd, flags.Output, func(fl *pflag.FlagSet) {
		fl.VarP(&flags.Choice{To: &a.format, Of: all}, "format", "o", "how to print the result: "+strings.Join(all, ", "))
	})
}

func (a *app) print(value any, text func(*lines)) error { return a.printTo(a.out, value, text) }

func (a *app) printTo(w io.Writer, value any, text func(*lines)) error {
	switch a.format {
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
	return written(w, text)
}

func written(w io.Writer, text func(*lines)) error {
	l := &lines{w: w}
	text(l)
	return l.err
}

// lines prints lines, and keeps the first error. It folds lines wider than a terminal, except those of a script.
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

// table prints a table, if it has rows or a header.
func (l *lines) table(t command.Table) {
	if l.err == nil {
		l.err = t.Write(l.w)
	}
}

// command prints command lines, which it does not fold.
func (l *lines) command(line string) { l.write(command.Line("%s", line)) }

// prose prints a folded text with one prefix for its first line and another for the rest. It prints nothing for an
// empty text.
func (l *lines) prose(first, rest, text string) {
	if text = strings.Join(strings.Fields(command.Printable(text)), " "); text != "" {
		l.write(columns.Hanging(command.Printable(first), rest, text, columns.Prose(l.w)) + "\n")
	}
}

func dash(s string) string { return cmp.Or(s, "-") }

// wait waits until look returns "", and prints each new reason. It looks once without a limit.
func (a *app) wait(
	ctx context.Context, limit time.Duration, op, hint string, look func() (why string, err error),
) error {
	var last, failed string
	say := func(what string) {
		if what != "" && what != last {
			_ = command.Say(a.err, "waiting for %s", what)
			last = what
		}
	}
	return clusterstate.Until(ctx, max(limit, 1), 500*time.Millisecond, op, hint, func() (string, error) {
		say(failed) // an error that did not end the wait
		why, err := look()
		if failed = ""; err != nil {
			failed = err.Error()
		}
		say(why)
		return why, err
	})
}

func cut(text string, most int) string {
	letters := []rune(strings.ReplaceAll(text, "\n", " "))
	if len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return string(letters)
}
