package vdoctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
)

type consentFlags struct{ yes, dryRun bool }

func (f *consentFlags) bind(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask before anything is changed")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would be done, have the API server check it, and change nothing")
}

func (a *app) interactive() bool { return a.in != nil && term.IsTerminal(int(a.in.Fd())) }

// consent asks for consent on the terminal, unless --yes gives it.
func (a *app) consent(ctx context.Context, f consentFlags, question string) error {
	switch {
	case f.yes:
		return nil
	case !a.interactive():
		return fault.Errorf(fault.Refused, "nothing was changed", "",
			"look at what it would do with --dry-run, then say --yes",
			"there is no terminal to ask for consent: %s", question)
	}
	if yes, err := a.isYes(ctx, question); err != nil || yes {
		return err
	}
	return fault.Errorf(fault.Refused, "nothing was changed", "", "", "it was answered with no")
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
			return "", fault.Errorf(fault.Interrupted, "interrupted", "", "run the same command again", "nothing was changed")
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
