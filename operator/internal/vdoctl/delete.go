package vdoctl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airshipv1 "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
)

type removal struct {
	Target string   `json:"target"` // the context and its API server
	Stages []stage  `json:"stages"`
	Stays  []string `json:"stays,omitempty"` // what is of the drivers and is left, and why
	DryRun bool     `json:"dryRun,omitempty"`
}

// stage is what is deleted together, and gone before the next one begins.
type stage struct {
	Name    string   `json:"name"`
	Objects []string `json:"objects"`
	objects []client.Object
}

type deleteOptions struct {
	*app
	consentFlags
	goals

	keepDrivers bool
	timeout     time.Duration
}

type goals struct{ drivers, settings, operator, crds, all bool }

func newDeleteCommand(a *app) *cobra.Command {
	o := &deleteOptions{app: a}
	cmd := &cobra.Command{
		Use: "delete", Short: "Remove drivers, configuration, operator or CRDs, each only as asked",
		Long: `Removes what is asked for, in the order in which nothing is left behind, and waits until
each part is gone. The namespaces of operator and drivers stay, and are named.

It refuses while volumes use the storage driver, while an account is left that users create made
(vdoctl users delete), while others need the kinds, and where spec.onDelete: Orphan of the
VDOConfig would leave the drivers. With --keep-drivers the VDOConfig goes and the drivers stay
installed, but for the registration of the storage driver's webhook, whose certificate nobody
would renew; an operator that is installed later takes them over. Interrupted, it goes on when
it is run again.`,
		Example: `  vdoctl delete --all --dry-run
  vdoctl delete --drivers
  vdoctl delete --operator --crds --configuration --keep-drivers --yes`,
		Args: flags.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.bind(cmd)
	return cmd
}

func (o *deleteOptions) bind(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVar(&o.drivers, "drivers", false, "the VDOConfig; the operator then removes the drivers")
	fl.BoolVar(&o.settings, "configuration", false, "VsphereCloudConfigs, DriverBundles, and the Secrets and ConfigMaps of the namespace that they name")
	fl.BoolVar(&o.operator, "operator", false, "the operator and its rights")
	fl.BoolVar(&o.crds, "crds", false, "the operator's kinds")
	fl.BoolVar(&o.all, "all", false, "all of these")
	fl.BoolVar(&o.keepDrivers, "keep-drivers", false, "leave the drivers installed, without a VDOConfig")
	fl.DurationVar(&o.timeout, "timeout", 15*time.Minute, "how long (`DURATION`) to wait for each part to be gone")
	o.consentFlags.bind(cmd)
	o.bindFormat(cmd)
}

func (o *deleteOptions) run(cmd *cobra.Command) error {
	if o.all {
		o.goals = goals{drivers: !o.keepDrivers, settings: true, operator: true, crds: true}
	}
	switch {
	case o.goals == (goals{}) && !o.keepDrivers:
		return flags.Usage(cmd, "say what to delete: --drivers, --configuration, --operator, --crds or --all")
	case o.drivers && o.keepDrivers:
		return flags.Bad("--keep-drivers", "true", errors.New("--drivers is given as well"), "give one of them")
	}
	ctx := cmd.Context()
	c, err := o.cluster.client()
	if err != nil {
		return err
	}
	target, err := o.cluster.target()
	if err != nil {
		return err
	}
	r, err := o.plan(ctx, c)
	if err != nil {
		return err
	}
	if r.Target = target; !o.dryRun && len(r.Stages) > 0 {
		if err := o.removeAll(ctx, c, r); err != nil {
			return err
		}
	}
	return o.print(r, func(l *lines) { o.text(l, r) })
}

func (o *deleteOptions) removeAll(ctx context.Context, c client.Client, r removal) error {
	if !o.yes {
		if err := written(o.err, func(l *lines) { o.text(l, r) }); err != nil {
			return err
		}
	}
	if err := o.consent(ctx, o.consentFlags, "Delete the above from "+r.Target+"?"); err != nil {
		return err
	}
	// Asked again: while somebody reads the question volumes are made.
	if _, err := o.observe(ctx, c); err != nil {
		return err
	}
	for _, s := range r.Stages {
		if err := o.remove(ctx, c, s); err != nil {
			return err
		}
	}
	return nil
}

func (o *deleteOptions) remove(ctx context.Context, c client.Client, s stage) error {
	if s.Name == stageConfig {
		if err := orphan(ctx, c, s.objects); err != nil {
			return err
		}
	}
	for _, x := range s.objects {
		if err := client.IgnoreNotFound(c.Delete(ctx, x)); err != nil {
			return clusterstate.Fault("delete "+describeObject(x), err)
		}
	}
	return o.gone(ctx, c, s.objects)
}

func (o *deleteOptions) gone(ctx context.Context, c client.Client, left []client.Object) error {
	why, err := o.progress().wait(ctx, o.timeout, func() (string, error) {
		for ; len(left) > 0; left = left[1:] {
			name := describeObject(left[0])
			switch err := c.Get(ctx, client.ObjectKeyFromObject(left[0]), left[0]); {
			case err == nil:
				return name + whyNotGone(left[0]), nil
			case !isGone(err):
				return "", clusterstate.Fault("wait for "+name, err)
			}
			_ = command.Say(o.err, "%s is gone", name)
		}
		return "", nil
	})
	if err != nil || why == "" {
		return err
	}
	return fault.Errorf(fault.Incomplete, "delete", describeObject(left[0]),
		"see to what it waits for, then run the same command again; that drivers are removed takes a running operator",
		"it is still there after %s%s", o.timeout, whyNotGone(left[0]))
}

func (o *deleteOptions) text(l *lines, r removal) {
	l.printf("%s, namespace %s", r.Target, o.cluster.namespace)
	if len(r.Stages) == 0 {
		l.printf("Nothing of what was asked for is there.")
	}
	for _, s := range r.Stages {
		l.printf("%s", o.paint(bold, s.Name))
		for _, x := range s.Objects {
			l.printf("  %s", x)
		}
	}
	if len(r.Stays) > 0 {
		l.printf("%s", o.paint(yellow, "stays"))
	}
	for _, x := range r.Stays {
		l.printf("  %s", x)
	}
	if r.DryRun && len(r.Stages) > 0 {
		l.printf("Nothing was changed: --dry-run.")
	}
}

// orphaned refuses to remove drivers that the operator was told to leave: the VDOConfig would
// go and they would stay, with nobody who removes them.
func (o *deleteOptions) orphaned(configs []client.Object) error {
	for _, v := range ofType[*v1alpha1.VDOConfig](configs) {
		if o.drivers && v.Spec.OnDelete == v1alpha1.DeleteOrphan {
			return fault.Errorf(fault.Refused, "delete", describeObject(v),
				fmt.Sprintf("leave them installed (--keep-drivers), or have them removed: `kubectl -n %s patch vdoconfig %s --type merge -p '{\"spec\":{\"onDelete\":\"Refuse\"}}'`", v.Namespace, v.Name),
				"spec.onDelete is Orphan: the drivers would stay installed")
		}
	}
	return nil
}

// kindsInUse refuses to delete kinds of which resources are left: those of the namespace,
// where the configuration was not asked for, and those of others, tenants for instance.
func (o *deleteOptions) kindsInUse(ctx context.Context, c client.Reader, has resources) error {
	if !o.crds {
		return nil
	}
	tenants, err := tenantClusters(ctx, c)
	if err != nil {
		return err
	}
	switch needed := append(described(has.others), tenants...); {
	case len(needed) > 0:
		return fault.Errorf(fault.Refused, "delete", "the CRDs",
			"leave the CRDs: `vdoctl delete --drivers --configuration --operator`; or have the owners of these remove them first",
			"others in the cluster need them: %s", firstOf(needed))
	case len(has.rest) > 0 && !o.settings:
		return fault.Errorf(fault.Refused, "delete", "the CRDs", "delete these too: --configuration",
			"with them would go %s", firstOf(described(has.rest)))
	}
	return nil
}

// tenantClusters are the SIPClusters, whose operator needs the kinds of bundles.
func tenantClusters(ctx context.Context, c client.Reader) (out []string, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(airshipv1.GroupVersion.WithKind("SIPClusterList"))
	err = pages.Each(ctx, c, list, func() {
		for i := range list.Items {
			out = append(out, "SIPCluster "+list.Items[i].Namespace+"/"+list.Items[i].Name)
		}
	})
	if err != nil && !isGone(err) {
		return nil, clusterstate.Fault("read the SIPClusters", err)
	}
	return out, nil
}

// accountRecord begins the names of the ConfigMaps that say what `users create` made.
const accountRecord = "vdo-account-"

// accountsLeft refuses to take away what `users delete` needs: the record of an account, and
// the vCenters and the Secret that it is about.
func (o *deleteOptions) accountsLeft(ctx context.Context, c client.Client) error {
	if !o.settings && (!o.operator || o.keepDrivers) {
		return nil
	}
	var secrets []string
	for _, ns := range []string{o.cluster.namespace, credentials.Fallback} { // where a record is, beside its Secret
		var list corev1.ConfigMapList
		if err := c.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return clusterstate.Fault("read the ConfigMaps of "+ns, err)
		}
		for i := range list.Items {
			if name, ok := strings.CutPrefix(list.Items[i].Name, accountRecord); ok {
				secrets = append(secrets, name)
			}
		}
	}
	if len(secrets) == 0 {
		return nil
	}
	return fault.Errorf(fault.Refused, "delete", "the configuration or the operator",
		"remove the drivers (`vdoctl delete --drivers`), then the accounts (`vdoctl users delete --username ADMIN`), then the rest",
		"users create made accounts in vCenters, which would stay there: of Secrets %s", firstOf(secrets))
}
