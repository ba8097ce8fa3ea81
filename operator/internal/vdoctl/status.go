package vdoctl

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/columns"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
)

type statusReport struct {
	Ready      bool            `json:"ready"` // of everything
	Operator   operatorStatus  `json:"operator"`
	Bundles    []bundleStatus  `json:"bundles"`
	VCenters   []vcenterStatus `json:"vcenters"`
	Drivers    []driverStatus  `json:"drivers"`
	VDOConfig  string          `json:"vdoConfig,omitempty"` // its name
	Kubernetes string          `json:"kubernetes,omitempty"`
	NodesReady string          `json:"nodesReady,omitempty"`
	// Nodes are unhealthy nodes, and nodes with gated changes.
	Nodes   []v1alpha1.NodeStatus `json:"nodes,omitempty"`
	Waiting []waiting             `json:"waiting,omitempty"` // unhealthy objects, and why
	// Ahead is what later versions of Kubernetes and vCenter lack, and a waiting upgrade; no present fault.
	Ahead     []waiting  `json:"ahead,omitempty"`
	Candidate *candidate `json:"candidate,omitempty"` // the waiting upgrade, why, and what to do
	// Preflight is the last result of the operator's checks of cluster and vCenters.
	Preflight *v1alpha1.PreflightStatus `json:"preflight,omitempty"`
	// PreflightBefore is set if that is older than the last rollout.
	PreflightBefore bool `json:"preflightBefore,omitempty"`

	namespace string
}

func (r statusReport) objects() (out []string) {
	if r.Operator.Installed {
		out = append(out, "Deployment "+operatorDeployment)
	}
	for _, b := range r.Bundles {
		out = append(out, "DriverBundle "+b.Name)
	}
	for _, v := range r.VCenters {
		out = append(out, "VsphereCloudConfig "+v.Name)
	}
	if r.VDOConfig != "" {
		out = append(out, "VDOConfig "+r.VDOConfig)
	}
	return out
}

type bundleStatus struct {
	Name       string       `json:"name"`
	Digest     string       `json:"digest,omitempty"`
	Tag        string       `json:"tag,omitempty"`
	VerifiedBy []string     `json:"verifiedBy,omitempty"`
	Serial     int64        `json:"serial,omitempty"`
	Expires    *metav1.Time `json:"expires,omitempty"`
	Kubernetes string       `json:"kubernetes,omitempty"`
}

type vcenterStatus struct {
	Name    string `json:"name"`
	Server  string `json:"server"`
	Version string `json:"version,omitempty"`
	Ready   string `json:"ready"` // True, False, Unknown
}

// driverStatus is the status of a driver, with the version that spec.drivers requests.
type driverStatus struct {
	v1alpha1.DriverStatus

	Pinned string `json:"pinned,omitempty"`
}

type waiting struct {
	Object  string `json:"object"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

type statusOptions struct {
	*app

	prose    bool // describe
	watch    bool
	interval time.Duration // between refreshes
}

func newDescribeCommand(a *app) *cobra.Command {
	o := &statusOptions{app: a, prose: true}
	cmd := runs(o.run, &cobra.Command{
		Use: "describe", Short: "Explain what is not ready, why, and what to do",
		Long: `Explains the status of operator, bundle with signers, vCenters, drivers and nodes. It lists the
results of the operator's checks and a waiting upgrade, and says what to do about each.`,
	})
	o.bindFormat(cmd)
	return cmd
}

func newStatusCommand(a *app) *cobra.Command {
	o := &statusOptions{app: a, interval: 2 * time.Second}
	cmd := runs(o.run, &cobra.Command{
		Use:   "status",
		Short: "List operator, bundles, vCenters and drivers",
		Long: `Lists the operator, its resources and the drivers, whether each is ready, and why not.
` + "`vdoctl describe`" + ` explains it. --watch repeats it until Ctrl-C, with exit code 0.`,
	})
	flags.Group(cmd, flags.Output, func(fl *pflag.FlagSet) {
		fl.BoolVarP(&o.watch, "watch", "w", false, "print it again when it changes, until Ctrl-C")
	})
	o.bindFormat(cmd, nameFormat)
	return cmd
}

func (o *statusOptions) run(ctx context.Context) error {
	c, err := o.cluster.client()
	if err != nil {
		return err
	}
	err = o.show(ctx, c)
	if o.watch && ctx.Err() != nil {
		return nil //nolint:nilerr // this is how watching ends
	}
	return err
}

func (o *statusOptions) show(ctx context.Context, c client.Reader) error {
	var last []byte
	for said := ""; ; {
		r, err := readStatus(ctx, c, o.cluster.namespace)
		switch {
		case err == nil:
			last, err = o.draw(r, last)
			said = ""
		case last != nil && fault.ReasonOf(err) == fault.Unreachable: // such as an API server that restarts
			text := fault.Text(err)
			if err = nil; text != said {
				err = command.Say(o.err, "%s", text)
			}
			last, said = []byte{}, text // draw again afterwards
		}
		if err != nil {
			return err
		}
		switch {
		case !o.watch && r.Ready:
			return nil
		case !o.watch:
			return &resultError{code: command.ExitRefused}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(o.interval):
		}
	}
}

// draw prints a report unless it equals the last one, and returns what it printed.
func (o *statusOptions) draw(r statusReport, last []byte) ([]byte, error) {
	screen := columns.Screen{Wide: columns.Of(o.out)}
	if err := o.printTo(&screen, r, func(l *lines) { o.text(l, r) }); err != nil {
		return last, err
	}
	now := screen.Bytes()
	if bytes.Equal(now, last) {
		return last, nil
	}
	out := now
	if o.watch && o.terminal { // replaces the previous one
		out = append([]byte("\x1b[H\x1b[2J"), now...)
	}
	_, err := o.out.Write(out)
	return now, err
}

const (
	maxLease  = 5 * time.Minute  // the age of a Lease up to which its holder counts as the operator
	clockSkew = 30 * time.Second // between its clock and this one
)

func readStatus(ctx context.Context, c client.Reader, namespace string) (statusReport, error) {
	r := statusReport{
		namespace: namespace, Bundles: []bundleStatus{}, VCenters: []vcenterStatus{}, Drivers: []driverStatus{},
	}
	var bundles v1alpha1.DriverBundleList
	var vcenters v1alpha1.VsphereCloudConfigList
	var configs v1alpha1.VDOConfigList
	for _, list := range []client.ObjectList{&bundles, &vcenters, &configs} {
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return r, clusterstate.Fault("read the status", err)
		}
	}
	if err := namespaceEnds(ctx, c, namespace); err != nil {
		r.wait("Namespace "+namespace, "Terminating", fault.CauseOf(err).Error()+": "+fault.HintOf(err))
	}
	if err := r.operator(ctx, c, namespace); err != nil {
		return r, err
	}
	for i := range bundles.Items {
		r.bundle(&bundles.Items[i])
	}
	for i := range vcenters.Items {
		r.vcenter(&vcenters.Items[i])
	}
	for i := range configs.Items {
		r.config(&configs.Items[i])
	}
	if len(configs.Items) == 0 {
		r.wait("VDOConfig", "NotFound", "no VDOConfig in namespace "+namespace+"; use -n, or create one with `vdoctl configure`")
	}
	r.Ready = len(r.Waiting) == 0
	return r, nil
}

func (r *statusReport) bundle(b *v1alpha1.DriverBundle) {
	s := bundleStatus{Name: b.Name, Digest: b.Status.Digest, Tag: b.Status.Tag, VerifiedBy: b.Status.VerifiedBy, Kubernetes: b.Status.Kubernetes}
	if m := b.Status.Matrix; m != nil {
		s.Serial, s.Expires = m.Serial, &m.Expires
	}
	r.Bundles = append(r.Bundles, s)
	r.waits("DriverBundle "+b.Name, b.Generation, b.Status.ObservedGeneration, b.Status.Conditions)
}

func (r *statusReport) vcenter(v *v1alpha1.VsphereCloudConfig) {
	s := vcenterStatus{Name: v.Name, Server: v.Spec.VcIP, Version: v.Status.Version, Ready: string(metav1.ConditionUnknown)}
	if ready := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		s.Ready = string(ready.Status)
	}
	r.VCenters = append(r.VCenters, s)
	r.waits("VsphereCloudConfig "+v.Name, v.Generation, v.Status.ObservedGeneration, v.Status.Conditions)
}

func (r *statusReport) config(c *v1alpha1.VDOConfig) {
	for _, d := range c.Status.Drivers {
		r.Drivers = append(r.Drivers, driverStatus{d, c.Spec.PolicyOf(d.Driver).Version})
	}
	if since := c.DeletionTimestamp; since != nil {
		r.wait("VDOConfig "+c.Name, "Deleting", "it is being deleted since "+when(*since)+", and what is below may be older")
	}
	r.Nodes = append(r.Nodes, c.Status.Nodes...)
	if r.Preflight = c.Status.Preflight; r.Preflight != nil && r.Preflight.CheckedAt != nil {
		r.PreflightBefore = slices.ContainsFunc(c.Status.Revisions, func(x v1alpha1.RevisionStatus) bool {
			return x.Current && r.Preflight.CheckedAt.Before(&x.Since)
		})
	}
	r.VDOConfig, r.Kubernetes, r.NodesReady = c.Name, c.Status.Kubernetes, c.Status.NodesReady
	r.Candidate = candidateOf(c)
	r.waits("VDOConfig "+c.Name, c.Generation, c.Status.ObservedGeneration, c.Status.Conditions)
}

// table lists the resources, each reason why one is not ready, and anything that waits although all is ready. describe
// prints these below, in full.
func (o *statusOptions) table(l *lines, r statusReport) {
	t, most := command.NewTable("NAME", "READY", "REASON", "MESSAGE"), math.MaxInt
	if o.terminal {
		most = maxValue
	}
	add := func(object string, ready any, reason, message string) {
		switch {
		case !o.prose:
			message = cut(strings.ReplaceAll(message, "\n", "; "), most) // several faults
		case ready != true && reason != "":
			message = "see below"
		}
		t.Row(strings.Replace(object, " ", "/", 1), ready, dash(reason), message)
	}
	well := func(object, message string) {
		isObject := func(x waiting) bool { return x.Object == object }
		if !slices.ContainsFunc(r.Waiting, isObject) {
			add(object, true, "", message)
		}
	}
	operator := "Deployment " + o.cluster.namespace + "/" + operatorDeployment
	if r.Operator.Installed {
		well(operator, dash(r.Operator.Version)+", "+r.Operator.Ready+" ready")
	} else if r.Operator.Leader != "" {
		well(operator, "it runs beside the cluster, "+r.Operator.Leader+" leads")
	}
	for _, b := range r.Bundles {
		well("DriverBundle "+b.Name, b.says())
	}
	for _, v := range r.VCenters {
		well("VsphereCloudConfig "+v.Name, strings.TrimSpace(v.Server+" "+v.Version))
	}
	if r.VDOConfig != "" {
		well("VDOConfig "+r.VDOConfig, fmt.Sprintf("Kubernetes %s, nodes %s", dash(r.Kubernetes), dash(r.NodesReady)))
	}
	for _, x := range r.Waiting {
		add(x.Object, false, x.Reason, x.Message)
	}
	for _, x := range r.Ahead {
		add("ahead", "-", x.Reason, x.Object+": "+x.Message)
	}
	for _, d := range r.Drivers {
		version := dash(d.Version)
		if d.Wanted != "" && d.Wanted != d.Version {
			version += " -> " + d.Wanted
		}
		add("driver "+d.Driver, d.Ready, "", strings.TrimSpace(version+" "+d.says()))
	}
	l.table(t)
}

func (o *statusOptions) text(l *lines, r statusReport) {
	o.table(l, r)
	if !o.prose {
		if !r.Ready || r.Candidate != nil || len(r.Ahead) > 0 {
			l.printf("\nTo see why, and what to do: `vdoctl describe`")
		}
		return
	}
	o.listed(l, "not ready", r.Waiting)
	if len(r.Nodes) > 0 {
		l.printf("\nnodes  %s ready", r.NodesReady)
	}
	for _, n := range r.Nodes {
		l.printf("  %s (%s): %s", n.Name, n.Driver, n.Message)
	}
	o.checks(l, r.Preflight, r.PreflightBefore)
	r.Candidate.text(l)
	o.listed(l, "ahead", r.Ahead)
	if len(r.Waiting) == 0 {
		l.printf("\neverything is ready")
	}
}

func (o *statusOptions) listed(l *lines, title string, list []waiting) {
	if len(list) > 0 {
		l.printf("\n%s", title)
	}
	for _, x := range list {
		l.printf("  %s (%s)", x.Object, x.Reason)
		l.prose("    ", "    ", x.Message)
	}
}

func (b bundleStatus) says() string {
	if b.Digest == "" {
		return "none accepted yet"
	}
	out := b.Digest[:min(len(b.Digest), len("sha256:")+12)]
	if len(b.VerifiedBy) > 0 {
		out += ", signed by " + strings.Join(b.VerifiedBy, " and ")
	}
	if b.Expires != nil {
		out += fmt.Sprintf(", matrix serial %d, expires %s", b.Serial, b.Expires.UTC().Format(time.DateOnly))
	}
	if b.Kubernetes != "" {
		out += ", for Kubernetes " + b.Kubernetes
	}
	return out
}

// checks prints the last findings of the operator's checks, with remedies. Findings do not decide whether all is
// ready: changes that they gate are listed as waiting.
func (o *statusOptions) checks(l *lines, p *v1alpha1.PreflightStatus, before bool) {
	if p == nil {
		return
	}
	looked := "of what the bundle holds alone: cluster and vCenters were not checked"
	if p.CheckedAt != nil {
		looked = "at " + when(*p.CheckedAt)
		if before {
			looked += ", before the last roll-out"
		}
		looked += "; to check now: `vdoctl check`"
	}
	l.printf("\nchecks  %d passed, %s", p.Passed, looked)
	for i := range p.Results {
		r := &p.Results[i]
		where := ""
		if r.VCenter != "" {
			where = " in " + r.VCenter
		}
		if len(r.Objects) > 0 {
			where += " on " + strings.Join(r.Objects, ", ")
		}
		l.printf("  %s %s%s: %s", r.Action, r.ID, where, strings.ReplaceAll(r.Found, "\n", "; "))
		l.prose(indent+"do ", indent+"   ", r.Remedy)
	}
	if p.Omitted > 0 {
		l.printf("  and %d more: `vdoctl check`", p.Omitted)
	}
}

// waits adds each unhealthy condition. It adds Ready, which sums up the others, unless one of them says the same.
func (r *statusReport) waits(object string, generation, observed int64, conditions []metav1.Condition) {
	if observed < generation || len(conditions) == 0 {
		message := "the operator has not seen its last change"
		if r.Operator.Installed {
			message += "; if that stays so: `kubectl -n " + r.namespace + " logs deployment/vdo-operator`"
		}
		r.wait(object, "NotObserved", message)
		return
	}
	ready := ptr.Deref(meta.FindStatusCondition(conditions, v1alpha1.ConditionReady), metav1.Condition{})
	isReady, said := ready.Status == metav1.ConditionTrue, false
	for i := range conditions {
		switch c := &conditions[i]; {
		case c.Status == wellStatus(c.Type) || slices.Contains(summaries, c.Type):
		case c.Type == v1alpha1.ConditionUpgradeable,
			// it may last for weeks, and the drivers are healthy; Unknown: they were not for long enough yet
			c.Type == v1alpha1.ConditionUpgraded && isReady &&
				(c.Status == metav1.ConditionUnknown || decide.Reason(c.Reason).Waits()):
			r.Ahead = append(r.Ahead, waiting{object, c.Reason, c.Type + ": " + c.Message})
		default:
			r.wait(object, c.Reason, c.Type+": "+c.Message)
			said = said || strings.Contains(ready.Message, c.Message) || strings.Contains(c.Message, ready.Message)
		}
	}
	if !said && !isReady && ready.Type != "" {
		r.wait(object, ready.Reason, ready.Message)
	}
}

func (r *statusReport) wait(object, reason, message string) {
	r.Waiting = append(r.Waiting, waiting{object, reason, message})
}

var summaries = []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled}

func wellStatus(condition string) metav1.ConditionStatus {
	if condition == v1alpha1.ConditionSuspended || condition == v1alpha1.ConditionDrifted {
		return metav1.ConditionFalse
	}
	return metav1.ConditionTrue
}

type operatorStatus struct {
	Installed bool   `json:"installed"`
	Version   string `json:"version,omitempty"` // of its bundle, else the image
	Ready     string `json:"ready,omitempty"`   // pods: "1/1"
	Leader    string `json:"leader,omitempty"`  // of an operator outside of the cluster
}

// operator reads the status of the operator. One outside of the cluster has no Deployment, only a Lease.
func (r *statusReport) operator(ctx context.Context, c client.Reader, namespace string) error {
	var d appsv1.Deployment
	key := client.ObjectKey{Namespace: namespace, Name: operatorDeployment}
	object := "Deployment " + key.String()
	switch err := c.Get(ctx, key, &d); {
	case isGone(err):
		var lease coordinationv1.Lease
		_ = c.Get(ctx, key, &lease) //nolint:errcheck // an unreadable one has no holder
		holder, renewed := ptr.Deref(lease.Spec.HolderIdentity, ""), ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{})
		if age := time.Since(renewed.Time); holder != "" && age < maxLease {
			r.Operator.Leader, _, _ = strings.Cut(holder, "_") // POD_UUID
			if age > time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 15))*time.Second+clockSkew {
				r.wait(object, "Unknown", fmt.Sprintf("the operator beside the cluster, %s, did not renew its Lease for %s: start it "+
					"or compare its clock, or install one by `vdoctl deploy BUNDLE`", r.Operator.Leader, age.Round(time.Second)))
			}
			return nil
		}
		if namespace == "vmware-system-sip" {
			r.wait(object, "NotFound", "vdoctl serves the drivers' operator, which is not in the namespace of the one for SIPClusters: leave out -n")
			return nil
		}
		r.wait(object, "NotFound", "there is no operator in namespace "+namespace+": `vdoctl deploy BUNDLE` "+
			"installs one; where it is in another namespace, name that with -n")
		return nil
	case err != nil:
		return clusterstate.Fault("read "+object, err)
	}
	up, want := clusterstate.NewPods(&d)
	ready := fmt.Sprintf("%d/%d", up, want)
	r.Operator = operatorStatus{Installed: true, Version: operatorVersion(&d), Ready: ready}
	switch {
	case want == 0:
		r.wait(object, "Incomplete", "the operator is scaled to 0, and nothing below is kept up to date: `kubectl -n "+d.Namespace+" scale deployment "+operatorDeployment+" --replicas=1`")
	case up < want:
		r.wait(object, "Incomplete", fmt.Sprintf("%d of %d pods of this version are ready: `kubectl -n %s describe pods "+
			"-l app.kubernetes.io/name=%s`", up, want, d.Namespace, operatorDeployment))
	}
	return nil
}

// operatorVersion returns the release of the operator in a bundle, or its image.
func operatorVersion(d *appsv1.Deployment) string {
	version := d.Annotations[deploy.AnnotationVersion]
	for _, c := range d.Spec.Template.Spec.Containers {
		version = cmp.Or(version, c.Image)
	}
	return version
}

type versionReport struct {
	Client     command.Build     `json:"client"`
	Kubernetes string            `json:"kubernetes,omitempty"`
	Operator   string            `json:"operator,omitempty"` // its release, else its image
	Drivers    map[string]string `json:"drivers,omitempty"`  // by name
	VCenters   map[string]string `json:"vcenters,omitempty"` // as the operator last saw them
	Unread     []string          `json:"unread,omitempty"`   // missing versions, and why
}

type versionOptions struct {
	*app

	clientOnly bool
}

func newVersionCommand(a *app) *cobra.Command {
	o := &versionOptions{app: a}
	cmd := runs(o.run, &cobra.Command{
		Use: "version", Short: "Show the versions of vdoctl, cluster and drivers",
		Long: `Shows the version of vdoctl, of the API server and, from the status, of the operator, the drivers
and the vCenters.`,
	})
	flags.Group(cmd, flags.Selection, func(fl *pflag.FlagSet) {
		fl.BoolVar(&o.clientOnly, "client", false, "this program alone; no cluster is asked")
	})
	o.bindFormat(cmd)
	return cmd
}

func (o *versionOptions) run(ctx context.Context) error {
	r := versionReport{Client: o.build}
	var err error
	if !o.clientOnly {
		err = o.observe(ctx, &r)
	}
	for _, f := range fault.All(err) {
		r.Unread = append(r.Unread, f.Error())
	}
	return fault.Join(err, o.print(r, r.text))
}

// observe reads the cluster's version and the operator's status, up to the first unreadable part.
func (o *versionOptions) observe(ctx context.Context, r *versionReport) error {
	cfg, err := o.cluster.config()
	if err != nil {
		return err
	}
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return clusterstate.Fault("reach the cluster", err)
	}
	server, err := d.ServerVersion()
	if err != nil {
		return clusterstate.Fault("ask the cluster for its version", err)
	}
	c, err := o.cluster.client()
	if err != nil {
		return err
	}
	r.Kubernetes, r.Drivers, r.VCenters = server.GitVersion, map[string]string{}, map[string]string{}
	status, err := readStatus(ctx, c, o.cluster.namespace)
	r.Operator = status.Operator.Version
	for _, x := range status.Drivers {
		r.Drivers[x.Driver] = x.Version
	}
	for _, v := range status.VCenters {
		if v.Version != "" {
			r.VCenters[v.Server] = v.Version
		}
	}
	if fault.ReasonOf(err) == fault.NotFound { // the cluster lacks the operator's kinds
		return nil
	}
	return err
}

func (r *versionReport) text(l *lines) {
	t := command.NewTable()
	t.Row("vdoctl", strings.TrimPrefix(r.Client.String(), r.Client.Program+" ")) // the row names the program
	if r.Kubernetes != "" {
		t.Row("kubernetes", r.Kubernetes)
		t.Row("vdo-operator", dash(r.Operator))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Drivers)) {
		t.Row(name, r.Drivers[name])
	}
	for _, server := range slices.Sorted(maps.Keys(r.VCenters)) {
		t.Row("vCenter "+server, r.VCenters[server])
	}
	l.table(t)
}
