package vdoctl

import (
	"cmp"
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/upgrade"
)

func newUpgradeCommand(a *app) *cobra.Command {
	return groupOf("upgrade", "List revisions, consent to an upgrade, go back to an earlier one",
		newUpgradeListCommand(a), newUpgradeApproveCommand(a), newUpgradeRollbackCommand(a))
}

// revisionList is what upgrade list prints.
type revisionList struct {
	Mode      string         `json:"mode"` // Automatic or Manual
	InForce   string         `json:"inForce,omitempty"`
	Revisions []revisionLine `json:"revisions"`
	Candidate *candidate     `json:"candidate,omitempty"`
}

type revisionLine struct {
	v1alpha1.RevisionStatus

	InForce bool `json:"inForce"`
}

// candidate is an upgrade that waits, and what to do about it.
type candidate struct {
	v1alpha1.CandidateStatus

	ToDo string `json:"toDo"`
}

type upgradeListOptions struct {
	*app
	outputFlags
}

func newUpgradeListCommand(a *app) *cobra.Command {
	o := &upgradeListOptions{app: a}
	cmd := &cobra.Command{
		Use: "list", Short: "List the revisions that were installed, and the upgrade that waits",
		Long: `Lists what the drivers were installed from, newest first: the releases, what became of
them, and who consented. An upgrade that waits or is held back is shown with the reason
and what to do about it.`,
		Example: "  vdoctl upgrade list\n  vdoctl upgrade list -o json | jq .candidate.name",
		Args:    flags.Exactly(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	o.outputFlags.bind(cmd)
	return cmd
}

func (o *upgradeListOptions) run(ctx context.Context) error {
	c, err := o.cluster.client()
	if err != nil {
		return err
	}
	config, err := theConfig(ctx, c, o.cluster.namespace)
	if err != nil {
		return err
	}
	r := revisionsOf(config)
	return o.print(o.out, r, func(w io.Writer) error { return o.text(w, r) })
}

// revisionsOf are the revisions of a VDOConfig, newest first.
func revisionsOf(config *v1alpha1.VDOConfig) revisionList {
	st := config.Status
	r := revisionList{Mode: string(cmp.Or(config.Spec.Upgrade, v1alpha1.UpgradeAutomatic)), InForce: st.Revision, Revisions: []revisionLine{}}
	for i := len(st.Revisions) - 1; i >= 0; i-- {
		x := revisionLine{st.Revisions[i], st.Revisions[i].Name == st.Revision}
		if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionUpgraded); x.InForce && x.Reason == "" && c != nil && c.Status == metav1.ConditionUnknown {
			x.Reason = c.Message // why it is not healthy yet, and until when
		}
		r.Revisions = append(r.Revisions, x)
	}
	if st.Candidate != nil {
		r.Candidate = &candidate{*st.Candidate, toDoOf(st.Candidate)}
	}
	return r
}

// toDoOf says what a person can do about an upgrade that waits.
func toDoOf(c *v1alpha1.CandidateStatus) string {
	reason := upgrade.Reason(c.Reason)
	switch {
	case reason != upgrade.WindowClosed:
		return upgrade.ToDo(reason, c.Name)
	case c.NotBefore != nil:
		return "nothing: it begins at " + when(*c.NotBefore)
	}
	return "correct spec.upgradePolicy.windows of the VDOConfig"
}

func when(t metav1.Time) string { return t.UTC().Format(time.RFC3339) }

func (o *upgradeListOptions) text(w io.Writer, r revisionList) error {
	l := &lines{w: w}
	t := command.NewTable("REVISION", "RELEASES", "OUTCOME", "SINCE", "APPROVED BY", "BUNDLE")
	for _, x := range r.Revisions {
		name := x.Name
		if x.InForce {
			name += " *"
		}
		t.Row(name, x.Releases, x.Outcome, when(x.Since), dash(x.ApprovedBy), shortBundle(x.Bundle))
	}
	if len(r.Revisions) == 0 {
		l.printf("Nothing was installed yet.")
	} else if l.err = t.Write(w); l.err == nil && r.InForce != "" {
		l.printf("* in force")
	}
	for _, x := range r.Revisions {
		if x.Reason != "" {
			l.block(x.Name+" "+strings.ToLower(x.Outcome), x.Reason)
		}
	}
	if c := r.Candidate; c != nil {
		l.printf("\n%s %s (%s)", o.paint(yellow, "waits"), c.Name, c.Reason)
		l.block("releases", c.Releases)
		l.block("why", c.Message)
		for _, g := range c.Gates {
			if g.Reason != c.Reason {
				l.block("why "+g.Driver, g.Message)
			}
		}
		l.block("do", c.ToDo)
	}
	return l.err
}

// says is what the screen says of a driver.
func (s driverStatus) says() string {
	if s.Pinned == "" {
		return s.Message
	}
	return strings.TrimSuffix("pinned to "+s.Pinned+" by spec.drivers; "+s.Message, "; ")
}

// block prints a text after its label, folded, and further lines below it.
func (l *lines) block(label, text string) {
	indent := label[:len(label)-len(strings.TrimLeft(label, " "))]
	l.prose("  "+label+": ", "    "+indent, text)
}

// shortBundle is REPOSITORY@DIGEST with as much of the digest as tells it from others.
func shortBundle(s string) string {
	at := strings.Index(s, "@sha256:")
	if at < 0 {
		return s
	}
	return s[:min(len(s), at+len("@sha256:")+12)]
}
