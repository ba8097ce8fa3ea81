package vdoctl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// consentFlags are those of commands that change the cluster.
type consentFlags struct{ yes, dryRun bool }

func (f *consentFlags) bind(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask before anything is changed")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would be done, have the API server check it, and change nothing")
}

// interactive tells whether somebody can be asked.
func (a *app) interactive() bool { return a.in != nil && term.IsTerminal(int(a.in.Fd())) }

// consent asks on the terminal whether to go on, where --yes does not say so.
func (a *app) consent(ctx context.Context, f consentFlags, question string) error {
	refused := &fault.Error{Reason: fault.Refused, Op: "nothing was changed", Err: errors.New("there is no terminal to ask for consent: " + question),
		Hint: "look at what it would do with --dry-run, then say --yes"}
	switch {
	case f.yes:
		return nil
	case !a.interactive():
		return refused
	}
	for {
		_, _ = fmt.Fprintf(a.err, "%s [y/N] ", question)
		line, err := a.line(ctx)
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		case "", "n", "no":
			if err != nil && ctx.Err() != nil {
				return ctx.Err()
			}
			refused.Err, refused.Hint = errors.New("it was answered with no"), ""
			return refused
		}
		_ = command.Say(a.err, "Answer with y or n.")
	}
}

// line reads a line of the terminal, until a signal ends the wait.
func (a *app) line(ctx context.Context) (string, error) {
	type read struct {
		line string
		err  error
	}
	came := make(chan read, 1)
	go func() { // ends with the program, which a signal ends next
		line, err := bufio.NewReader(a.in).ReadString('\n')
		came <- read{line, err}
	}()
	select {
	case <-ctx.Done():
		a.unanswered = true
		_, _ = fmt.Fprintln(a.err) // after what was asked
		return "", ctx.Err()
	case r := <-came:
		return r.line, r.err
	}
}

// hiddenLine reads a line that is not shown, until a signal ends the wait; the terminal shows
// what is typed again after it.
func (a *app) hiddenLine(ctx context.Context) ([]byte, error) {
	terminal := int(a.in.Fd())
	before, err := term.GetState(terminal)
	if err != nil {
		return nil, err
	}
	type read struct {
		line []byte
		err  error
	}
	came := make(chan read, 1)
	go func() { // ends with the program, which a signal ends next
		line, err := term.ReadPassword(terminal)
		came <- read{line, err}
	}()
	select {
	case <-ctx.Done():
		a.unanswered = true
		return nil, errors.Join(ctx.Err(), term.Restore(terminal, before))
	case r := <-came:
		return r.line, r.err
	}
}

// theConfig returns the VDOConfig of the namespace.
func theConfig(ctx context.Context, c client.Reader, namespace string) (*v1alpha1.VDOConfig, error) {
	var list v1alpha1.VDOConfigList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, clusterFault("read the VDOConfig", err)
	}
	switch n := len(list.Items); n {
	case 0:
		return nil, &fault.Error{Reason: fault.NotFound, Op: "read the VDOConfig", Subject: "namespace " + namespace,
			Err: errors.New("there is none"), Hint: "make one with `vdoctl configure`, or name its namespace with -n"}
	case 1:
		return &list.Items[0], nil
	default:
		return nil, &fault.Error{Reason: fault.Conflict, Op: "read the VDOConfig", Subject: "namespace " + namespace,
			Err: fmt.Errorf("there are %d", n), Hint: "a cluster has one: delete those that the operator refuses"}
	}
}

func dryRunPatch(yes bool) []client.PatchOption {
	if yes {
		return []client.PatchOption{client.DryRunAll}
	}
	return nil
}

func isConflict(err error) bool { return apierrors.IsConflict(err) }
