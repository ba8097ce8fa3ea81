package vdoctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airshipv1 "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
)

type removal struct {
	Target string   `json:"target"` // the context and its API server
	Stages []stage  `json:"stages"`
	Stays  []string `json:"stays,omitempty"` // remaining objects of the drivers, and why
	DryRun bool     `json:"dryRun,omitempty"`
}

// stage is a set of objects that are deleted together, and gone before the next stage begins.
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
		Use: "delete", Short: "Remove drivers, configuration, operator or CRDs",
		Long: `Removes the requested parts in an order that leaves no remains, and waits for the end of each.
It keeps the namespaces of operator and drivers, and names them. It refuses while volumes use
the storage driver, accounts of users create exist, or others need the CRDs.

With --keep-drivers it removes the VDOConfig, and the drivers stay installed, with the Secret and
record of their account. Only the registration of the storage driver's webhook goes. A later
operator adopts the drivers.`,
		Example: `  vdoctl delete --all --dry-run
  vdoctl delete --drivers
  vdoctl delete --operator --crds --configuration --keep-drivers --yes`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.bind(cmd)
	return cmd
}

func (o *deleteOptions) bind(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVar(&o.drivers, "drivers", false, "the VDOConfig; the operator then removes the drivers")
	fl.BoolVar(&o.settings, "configuration", false, "VsphereCloudConfigs, DriverBundles, and the Secrets and ConfigMaps of the namespace that they name")
	fl.BoolVar(&o.operator, "operator", false, "the operator and its permissions")
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
	if err := isWait(o.timeout); err != nil {
		return err
	}
	ctx := cmd.Context()
	c, err := o.cluster.client()
	if err != nil {
		return err
	}
	r, err := o.plan(ctx, c)
	if err != nil {
		return err
	}
	r.Target = o.cluster.target()
	show := func(l *lines) { o.text(l, r) }
	if o.yes || o.dryRun || len(r.Stages) == 0 {
		if err := o.print(r, show); err != nil || o.dryRun || len(r.Stages) == 0 {
			return err
		}
		return o.removeAll(ctx, c, r)
	}
	// The user sees the objects beside the question, even if standard output goes elsewhere.
	if err := o.agree(ctx, o.consentFlags, show, "Delete the above from "+r.Target+"?"); err != nil {
		return err
	}
	if err := o.removeAll(ctx, c, r); err != nil {
		return err
	}
	return o.print(r, show)
}

func (o *deleteOptions) removeAll(ctx context.Context, c client.Client, r removal) error {
	// Check again: volumes may be created while the user reads the question.
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
	const hint = "see to what it waits for, then run the same command again"
	return o.wait(ctx, o.timeout, "wait for the deletion", hint, func() (string, error) {
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
}

func (o *deleteOptions) text(l *lines, r removal) {
	l.printf("%s, namespace %s", r.Target, o.cluster.namespace)
	if len(r.Stages) == 0 {
		l.printf("None of the requested parts exists.")
	}
	for _, s := range append(r.Stages, stage{Name: "stays", Objects: r.Stays}) {
		if len(s.Objects) > 0 {
			l.printf("%s", s.Name)
		}
		for _, x := range s.Objects {
			l.printf("  %s", x)
		}
	}
	if r.DryRun && len(r.Stages) > 0 {
		l.printf("Nothing was changed: --dry-run.")
	}
}

// accountRecord is the name prefix of the ConfigMaps that record what `users create` created.
const accountRecord = "vdo-account-"

// recordedSecrets returns the names of the Secrets whose account `users create` recorded.
func (o *deleteOptions) recordedSecrets(ctx context.Context, c client.Client) (secrets []string, err error) {
	for _, ns := range []string{o.cluster.namespace, credentials.Fallback} { // a record is beside its Secret
		if err := pages.Each(ctx, c, &corev1.ConfigMapList{}, func(m *corev1.ConfigMap) {
			if name, ok := strings.CutPrefix(m.Name, accountRecord); ok {
				secrets = append(secrets, name)
			}
		}, client.InNamespace(ns)); err != nil {
			return nil, clusterstate.Fault("read the ConfigMaps of "+ns, err)
		}
	}
	return secrets, nil
}

const (
	stageDrivers       = "drivers"
	stageConfig        = "VDOConfig (the drivers stay installed, without the registration of their webhook)"
	stageConfiguration = "configuration"
	stageOperator      = "operator"
	stageCRDs          = "crds"
)

// resources are the existing resources of the operator's kinds.
type resources struct {
	known                 bool            // the cluster has one of the kinds
	configs, rest, others []client.Object // VDOConfigs, others in the namespace, and those of other namespaces
	accounts              []string        // the Secrets that users create recorded
	volumes               []string        // of the storage driver, if the drivers are to go
}

func readResources(ctx context.Context, c client.Reader, namespace string) (out resources, err error) {
	lists := []client.ObjectList{&v1alpha1.VDOConfigList{}, &v1alpha1.VsphereCloudConfigList{},
		&v1alpha1.DriverBundleList{}, &v1alpha1.CompatibilityConfigList{}}
	for _, list := range lists {
		err := c.List(ctx, list)
		if isGone(err) {
			continue
		}
		if err == nil {
			out.known = true
			err = meta.EachListItem(list, func(x runtime.Object) error { out.add(namespace, x); return nil })
		}
		if err != nil {
			return out, clusterstate.Fault("read the operator's resources", err)
		}
	}
	return out, nil
}

func (r *resources) add(namespace string, x runtime.Object) {
	of := x.(client.Object) //nolint:forcetypeassert,errcheck // all are
	to := &r.rest
	if of.GetNamespace() != namespace {
		to = &r.others
	} else if _, ok := x.(*v1alpha1.VDOConfig); ok {
		to = &r.configs
	}
	*to = append(*to, of)
}

func ofType[T client.Object](all []client.Object) (out []T) {
	for _, x := range all {
		if x, ok := x.(T); ok {
			out = append(out, x)
		}
	}
	return out
}

func described[T client.Object](all []T) (out []string) {
	for _, x := range all {
		out = append(out, describeObject(x))
	}
	return out
}

func referencesOf(all []client.Object) (out []v1alpha1.KeyReference) {
	for _, x := range all {
		switch x := x.(type) {
		case *v1alpha1.VsphereCloudConfig:
			out = append(out, v1alpha1.KeyReference{Secret: x.Spec.Credentials})
			if x.Spec.CA != nil {
				out = append(out, *x.Spec.CA)
			}
		case *v1alpha1.DriverBundle:
			pull, _ := x.PullSecretName()
			ca, _ := x.CAReference()
			out = append(append(out, v1alpha1.KeyReference{Secret: pull}, ca), x.TrustSources()...)
		}
	}
	return out
}

// plan returns the existing objects to delete, stage by stage, and the remaining ones.
func (o *deleteOptions) plan(ctx context.Context, c client.Client) (removal, error) {
	out := removal{Stages: []stage{}, DryRun: o.dryRun}
	has, err := o.observe(ctx, c)
	if err != nil {
		return out, err
	}
	errs := []error{o.unattended(ctx, c, has.configs)}
	add := func(name string, objects []client.Object, err error) {
		if errs = append(errs, err); len(objects) > 0 {
			out.Stages = append(out.Stages, stage{name, described(objects), objects})
		}
	}
	switch {
	case o.keepDrivers:
		add(stageConfig, has.configs, nil)
	case o.drivers:
		add(stageDrivers, has.configs, nil)
	}
	if o.settings {
		named, err := o.namedBy(ctx, c, has)
		add(stageConfiguration, named, err)
	}
	if o.operator {
		isPart := func(kind string) bool { return kind != crdKind && kind != "Namespace" }
		objects, err := o.installed(ctx, c, isPart)
		add(stageOperator, objects, err)
	}
	if o.crds {
		kinds, err := o.installed(ctx, c, func(kind string) bool { return kind == crdKind })
		add(stageCRDs, kinds, err)
	}
	out.Stays = o.stays()
	for _, name := range has.accounts {
		if o.keepDrivers {
			out.Stays = append(out.Stays, "Secret "+name+", ConfigMap "+accountRecord+name+
				": the account of the drivers; `vdoctl users delete` needs both, after the drivers")
		}
	}
	if o.drivers && len(has.configs) == 0 {
		cpi := metav1.ObjectMeta{Namespace: drivers.SystemNamespace, Name: drivers.CloudControllerManager}
		csi := metav1.ObjectMeta{Namespace: drivers.CSINamespace, Name: drivers.Controller}
		named := []client.Object{&appsv1.DaemonSet{ObjectMeta: cpi}, &appsv1.Deployment{ObjectMeta: csi}}
		left, err := present(ctx, c, named)
		if errs = append(errs, err); len(left) > 0 {
			out.Stays = append(out.Stays, firstOf(described(left))+": no VDOConfig has these drivers; "+
				"to remove them, deploy one (`vdoctl deploy BUNDLE -f FILE`), then run `vdoctl delete --drivers`")
		}
	}
	return out, fault.Join(errs...)
}

// observe reads what a delete depends on. It returns an error if the request is refused.
func (o *deleteOptions) observe(ctx context.Context, c client.Client) (resources, error) {
	has, err := readResources(ctx, c, o.cluster.namespace)
	if err == nil && (o.operator || o.crds || o.drivers && len(has.configs) == 0) {
		err = o.cluster.ownOperator(ctx, c, "delete")
	}
	if err == nil {
		err = namespaceEnds(ctx, c, o.cluster.namespace)
	}
	if err == nil {
		has.accounts, err = o.recordedSecrets(ctx, c)
	}
	if err == nil && o.crds {
		var tenants []client.Object
		tenants, err = tenantClusters(ctx, c)
		has.others = append(has.others, tenants...)
	}
	if err == nil && o.drivers {
		err = eachVolume(ctx, c, func(pv *corev1.PersistentVolume) {
			if s := pv.Spec; s.CSI != nil && s.CSI.Driver == drivers.CSIDriver || s.VsphereVolume != nil {
				has.volumes = append(has.volumes, pv.Name)
			}
		})
	}
	if err != nil {
		return has, err
	}
	return has, o.refused(has)
}

// tenantClusters returns the SIPClusters, whose operator needs the CRDs of bundles.
func tenantClusters(ctx context.Context, c client.Reader) ([]client.Object, error) {
	list := pages.Empty(airshipv1.GroupVersion.WithKind("SIPCluster"))
	if err := c.List(ctx, list); err != nil && !isGone(err) {
		return nil, clusterstate.Fault("read the SIPClusters", err)
	}
	return pointers(list.Items), nil
}

// refused returns why parts have to stay. Drivers need their VDOConfig, and volumes need the drivers. `users delete`
// needs the record of an account, its vCenters and its Secret. Resources need their CRDs.
func (o *deleteOptions) refused(has resources) error {
	var errs []error
	refuse := func(isAsked bool, because []string, what, hint, why string) {
		if isAsked && len(because) > 0 {
			errs = append(errs, fault.Errorf(fault.Refused, "delete", what, hint, why, firstOf(because)))
		}
	}
	refuse(!o.drivers && !o.keepDrivers, described(has.configs), "what the drivers need",
		"remove them with it (--drivers), or leave them installed without an operator (--keep-drivers)",
		"%s has them installed")
	refuse(o.drivers, has.volumes, "the drivers",
		"delete their claims first (`kubectl get pv` shows them), or leave the drivers installed with --keep-drivers",
		"volumes use the storage driver: %s")
	for _, v := range ofType[*v1alpha1.VDOConfig](has.configs) {
		if o.drivers && v.Spec.OnDelete == v1alpha1.DeleteOrphan {
			errs = append(errs, fault.Errorf(fault.Refused, "delete", describeObject(v),
				fmt.Sprintf("leave them installed (--keep-drivers), or have them removed: `kubectl -n %s patch vdoconfig %s --type merge -p '{\"spec\":{\"onDelete\":\"Refuse\"}}'`", v.Namespace, v.Name),
				"spec.onDelete is Orphan: the drivers would stay installed"))
		}
	}
	refuse(!o.keepDrivers && (o.settings || o.operator), has.accounts, "the configuration or the operator",
		"remove the drivers (`vdoctl delete --drivers`), then the accounts (`vdoctl users delete --username ADMIN --secret NAME`), "+
			"then the rest; or leave drivers and accounts: --keep-drivers",
		"users create made accounts in vCenters, which would stay there: of Secrets %s")
	needed := has.others
	if !o.settings {
		needed = append(needed, has.rest...)
	}
	refuse(o.crds, described(needed), "the CRDs",
		"leave the CRDs: `vdoctl delete --drivers --configuration --operator`; or have these removed first",
		"there is what needs them: %s")
	return fault.Join(errs...)
}

// unattended refuses to delete a VDOConfig while the operator is stopped. One beside the cluster may have no Lease.
func (o *deleteOptions) unattended(ctx context.Context, c client.Reader, configs []client.Object) (err error) {
	var r statusReport
	isHeld := func(x client.Object) bool { return slices.Contains(x.GetFinalizers(), v1alpha1.FinalizerDrivers) }
	if slices.ContainsFunc(configs, isHeld) {
		err = r.operator(ctx, c, o.cluster.namespace)
	}
	if err != nil || len(r.Waiting) == 0 || r.Operator.Installed && !strings.HasSuffix(r.Operator.Ready, "/0") {
		return err
	}
	if w := r.Waiting[0]; w.Reason == "NotFound" {
		return command.Say(o.err, "warning: only a running operator removes the drivers, and %s", w.Message)
	}
	return fault.Errorf(fault.Refused, "delete", "the VDOConfig", r.Waiting[0].Message, "only a running operator removes the drivers")
}

func firstOf(names []string) string { return fault.Few(names, 10) }

func eachVolume(ctx context.Context, c client.Reader, do func(*corev1.PersistentVolume)) error {
	if err := pages.Each(ctx, c, &corev1.PersistentVolumeList{}, do); err != nil {
		return clusterstate.Fault("read the PersistentVolumes", err)
	}
	return nil
}

// namedBy returns the configuration's resources in the namespace, and the objects that they name or the operator finds
// by fixed names. The Secrets of recorded accounts stay.
func (o *deleteOptions) namedBy(ctx context.Context, c client.Client, has resources) ([]client.Object, error) {
	refs := append(referencesOf(has.rest), v1alpha1.KeyReference{Secret: v1alpha1.DefaultPullSecretName})
	for _, name := range []string{v1alpha1.DefaultTrustName, v1alpha1.DefaultCAName,
		v1alpha1.LegacyMatrixName, v1alpha1.LegacyMatrixOtherName} {
		refs = append(refs, v1alpha1.KeyReference{ConfigMap: name})
	}
	refs = slices.DeleteFunc(refs, func(r v1alpha1.KeyReference) bool {
		return slices.Contains(has.accounts, r.Secret)
	})
	return present(ctx, c, append(referenced(o.cluster.namespace, refs...), has.rest...)) // what names a Secret goes after it
}

// referenced returns the Secrets and ConfigMaps of references; unset ones have no name.
func referenced(namespace string, refs ...v1alpha1.KeyReference) (out []client.Object) {
	for _, ref := range refs {
		out = append(out, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ref.Secret}},
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ref.ConfigMap}})
	}
	return out
}

// installed returns the existing objects of the operator's installation that are of some kinds, the last applied first.
func (o *deleteOptions) installed(
	ctx context.Context, c client.Client, isPart func(kind string) bool,
) ([]client.Object, error) {
	all := []client.Object{
		unnamespaced("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "vdo-upgrade-approval"),
		unnamespaced("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "vdo-upgrade-approval"),
	}
	manifests := deploy.Manifests()
	for i := len(manifests) - 1; i >= 0; i-- {
		read, err := o.readManifest(manifests[i].Data)
		if err != nil {
			return nil, err
		}
		slices.Reverse(read)
		all = append(all, read...)
	}
	return present(ctx, c, slices.DeleteFunc(all, func(x client.Object) bool { return !isPart(kindOf(x)) }))
}

const crdVersion, crdKind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"

// stays describes the objects that a user deletes by hand: the operator's namespace, which others may use, and objects
// that the drivers created. Those are the namespace with the cluster id, and CRDs whose objects map volumes and
// snapshots.
func (o *deleteOptions) stays() (out []string) {
	if o.operator && o.settings {
		out = append(out, "Namespace "+o.cluster.namespace+": a later operator needs the ConfigMaps vdo-bundle-… "+
			"and Secrets vdo-config-hash and "+v1alpha1.SerialsName+" in it. Others may keep something there. If nothing is needed: "+
			"`kubectl delete namespace "+o.cluster.namespace+"`")
	}
	if o.drivers {
		out = append(out, "Namespace "+drivers.CSINamespace+": keeps the cluster id of volumes if the driver made it; "+
			"if no volume is left: `kubectl delete namespace "+drivers.CSINamespace+"`",
			"CRDs of cns.vmware.com and snapshot.storage.k8s.io: may map volumes and snapshots; if none is left: "+
				"`kubectl delete crd NAME`")
	}
	return out
}

func orphan(ctx context.Context, c client.Client, configs []client.Object) error {
	for _, x := range configs {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"onDelete":"Orphan"}}`))
		if err := c.Patch(ctx, x, patch); client.IgnoreNotFound(err) != nil {
			return clusterstate.Fault("have the drivers stay", err)
		}
	}
	return nil
}

func whyNotGone(x client.Object) string {
	if config, ok := x.(*v1alpha1.VDOConfig); ok {
		ready := meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionReady)
		if ready != nil && ready.Status != metav1.ConditionTrue {
			return ": " + ready.Message
		}
	}
	return ""
}
