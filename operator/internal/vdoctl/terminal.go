package vdoctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/columns"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
)

const yamlFormat, nameFormat = "yaml", "name"

// named is a result with objects, which -o name prints as kubectl does.
type named interface {
	objects() []string // Kind name, or Kind namespace/name
}

func objectsOf(changes []changedObject) (out []string) {
	for _, x := range changes {
		out = append(out, x.Object)
	}
	return out
}

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
	case nameFormat:
		text = func(l *lines) { l.names(value) }
	}
	return written(w, text)
}

func written(w io.Writer, text func(*lines)) error {
	l := &lines{w: w}
	text(l)
	return l.err
}

// lines prints lines, and keeps the first error. It folds lines wider than a terminal, except commands.
type lines struct {
	w   io.Writer
	err error
}

func (l *lines) printf(format string, args ...any) {
	if l.err == nil {
		l.err = command.Say(l.w, format, args...)
	}
}

func (l *lines) write(text string) {
	if l.err == nil {
		_, l.err = io.WriteString(l.w, text)
	}
}

func (l *lines) table(t command.Table) {
	if l.err == nil {
		l.err = t.Write(l.w)
	}
}

// command prints a command, or a line of a script, which it does not fold.
func (l *lines) command(format string, args ...any) { l.write(command.Line(format, args...)) }

func (l *lines) names(value any) {
	if n, ok := value.(named); ok {
		for _, object := range n.objects() {
			kind, name, _ := strings.Cut(object, " ")
			l.command("%s/%s", strings.ToLower(kind), path.Base(name))
		}
	}
}

// prose prints a folded text with one prefix for its first line and another for the rest. Lines of the text, such as
// several faults, stay apart. It prints nothing for an empty text.
func (l *lines) prose(first, rest, text string) {
	for line := range strings.Lines(command.Printable(text)) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			l.write(columns.Hanging(command.Printable(first), rest, line, columns.Prose(l.w)) + "\n")
			first = rest
		}
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

type consentFlags struct{ yes, dryRun bool }

func (f *consentFlags) bind(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask before anything is changed")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would be done, have the API server check it, and change nothing")
}

func (a *app) interactive() bool { return a.in != nil && term.IsTerminal(int(a.in.Fd())) }

func (a *app) consent(ctx context.Context, f consentFlags, question string) error {
	switch {
	case f.yes:
		return nil
	case !a.interactive():
		return fault.Errorf(fault.Refused, "confirm changes", "",
			"preview the changes with --dry-run, then confirm with --yes",
			"no terminal to ask for confirmation: %s", question)
	}
	if yes, err := a.isYes(ctx, question); err != nil || yes {
		return err
	}
	return fault.Errorf(fault.Refused, "aborted", "", "", "no changes made")
}

// agree shows the changes on the terminal and asks for consent, unless flags decide.
func (a *app) agree(ctx context.Context, f consentFlags, show func(*lines), question string) error {
	if f.yes || f.dryRun {
		return nil
	}
	if err := written(a.err, show); err != nil {
		return err
	}
	return a.consent(ctx, f, question)
}

func (a *app) warning(err error) {
	for _, e := range fault.Split(err) {
		_ = command.Say(a.err, "warning: %v\nhint: %s", e, fault.HintOf(e))
	}
}

func (a *app) isYes(ctx context.Context, question string) (bool, error) {
	_, _ = fmt.Fprintf(a.err, "%s [y/N] ", question)
	line, err := a.line(ctx, false)
	if err != nil && ctx.Err() != nil {
		return false, ctx.Err()
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", nil
}

// line reads a line of the terminal, until a signal ends the wait.
func (a *app) line(ctx context.Context, hidden bool) (string, error) {
	line, err := command.ReadLine(ctx, a.in, hidden)
	if ctx.Err() != nil {
		a.unanswered = true
		_, _ = fmt.Fprintln(a.err) // after the question
	}
	return line, err
}

type question struct {
	title, help, value string // Enter selects value
	secret             bool
	valid              func(string) error
}

// noAnswer is the input for none, if Enter selects a value. Who has read of a flag's "" may type that.
const noAnswer, noneTyped = "-", `""`

// prompt asks line by line until the answer is valid. It sends no query to the terminal: form libraries query its
// colours, and wait if it does not answer. A closed terminal or Ctrl-D ends it like Ctrl-C.
func (a *app) prompt(ctx context.Context, q question) (string, error) {
	say := func(text string) { _ = command.Say(a.err, "%s", text) }
	say("")
	if q.help != "" {
		say("  " + q.help)
	}
	prompt := q.title + ": "
	if q.value != "" {
		prompt = q.title + " [" + q.value + "]: "
	}
	for {
		_, _ = fmt.Fprint(a.err, command.Printable(prompt))
		answer, err := a.line(ctx, q.secret)
		if q.secret || err != nil {
			say("")
		}
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case err != nil && answer == "":
			return "", fault.Errorf(fault.Interrupted, "interrupted", "", "run the same command again", "no changes made")
		case !q.secret && slices.Contains([]string{noAnswer, noneTyped}, strings.TrimSpace(answer)):
			answer = ""
		case !q.secret:
			answer = cmp.Or(strings.TrimSpace(answer), q.value)
		}
		if q.valid == nil {
			return answer, nil
		}
		wrong := q.valid(answer)
		if wrong == nil || ctx.Err() != nil {
			return answer, ctx.Err()
		}
		say("  * " + fault.Text(wrong))
	}
}

// theConfig returns the VDOConfig of the namespace, and the client that read it.
func (a *app) theConfig(ctx context.Context) (client.Client, *v1alpha1.VDOConfig, error) {
	c, err := a.cluster.client()
	if err != nil {
		return nil, nil, err
	}
	config, err := theConfig(ctx, c, a.cluster.namespace)
	return c, config, err
}

var errNoConfig = errors.New("there is none")

// theConfig returns the VDOConfig that the operator serves. Among several, it has the finalizer.
func theConfig(ctx context.Context, c client.Reader, namespace string) (*v1alpha1.VDOConfig, error) {
	var list v1alpha1.VDOConfigList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, clusterstate.Fault("read the VDOConfig", err)
	}
	n, all := len(list.Items), list.Items
	if n > 1 {
		all = slices.DeleteFunc(all, func(v v1alpha1.VDOConfig) bool {
			return !slices.Contains(v.Finalizers, v1alpha1.FinalizerDrivers)
		})
	}
	switch {
	case n == 0:
		return nil, &fault.Error{Reason: fault.NotFound, Op: "read the VDOConfig in", Subject: "namespace " + namespace,
			Err: errNoConfig, Hint: "make one with `vdoctl configure`, or name its namespace with -n"}
	case len(all) == 1:
		return &all[0], nil
	default:
		return nil, &fault.Error{Reason: fault.Conflict, Op: "read the VDOConfig in", Subject: "namespace " + namespace,
			Err: fmt.Errorf("there are %d", n), Hint: "a cluster has one: delete those that the operator refuses"}
	}
}
