package vdoctl_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/mirror"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	behind "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/site"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

type planned struct {
	GoesOn  bool   `json:"goesOn"`
	Bundle  string `json:"bundle"`
	Drivers []struct {
		Driver, Running, Chosen, OneWay string
		Unsupported                     []string
	} `json:"drivers"`
	Route []struct {
		To    string
		Lacks []string
		Moves []struct{ Driver, From, To string }
	} `json:"route"`
	Held   []struct{ Reason, Driver, Message, Do string } `json:"held"`
	Checks []v1alpha1.PreflightResult
	Fetch  []string
	Plan   *v1alpha1.PlanStatus
}

// operated is a site with an operator of its own, to plan for.
type operated struct {
	*shop

	site   *behind.Site
	repo   *mirror.Repository
	public string                                   // key
	sign   func(tag string, d mirror.Bundle) string // pushes and signs; returns the reference
}

// operate starts a site, and an operator that installs a bundle of drivers.
func operate(t *testing.T) *operated {
	s := must.Have(behind.New(t.Context(), behind.Options{Dir: t.TempDir(), NoMirror: true, Progress: os.Stderr}))(t)
	t.Cleanup(s.Close)
	log.SetLogger(logr.Discard())
	require.NoError(t, cluster.InstallCRDs(s.Cluster.Config()))
	reg := registry.Start(t, registry.Options{TLS: true, Auth: registry.Basic})
	signer, public := mirror.NewKey(t)
	o := &operated{shop: &shop{t: t, k: clientOf(t, s.Cluster), ns: "vmware-system-vdo", conf: s.Cluster.Kubeconfig()}, site: s, public: public, repo: mirror.New(t, reg, "vdo/drivers")}
	o.sign = func(tag string, d mirror.Bundle) string {
		o.repo.Sign(t, o.repo.Push(t, tag, d), signer)
		return o.repo.Reference(tag)
	}
	first := o.sign("1", mirror.Bundle{Releases: []string{"cpi@1.33.1", "snapshot-controller@8.2.0", "csi@3.5.1"}})
	as := o.rights()
	for _, x := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: o.meta(v1alpha1.DefaultTrustName), Data: map[string]string{"vdo.pub": public}},
		&corev1.ConfigMap{ObjectMeta: o.meta(v1alpha1.DefaultCAName), Data: map[string]string{"ca.crt": string(reg.CA())}},
		&corev1.Secret{ObjectMeta: o.meta(v1alpha1.DefaultPullSecretName), Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: reg.DockerConfig()}},
	} {
		require.NoError(t, o.k.Create(t.Context(), x))
	}
	for _, u := range o.read(s.Resources(behind.ResourceOptions{Namespace: o.ns, Reference: first})) {
		require.NoError(t, o.k.Create(t.Context(), u))
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- operator.Run(ctx, as, operator.Options{Namespace: o.ns, Log: logr.Discard(), SeveralInProcess: true})
	}()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	o.until("installed", func(v *v1alpha1.VDOConfig, _ *v1alpha1.DriverBundle) bool {
		return meta.IsStatusConditionTrue(v.Status.Conditions, v1alpha1.ConditionReady)
	})
	return o
}

// rights installs the operator's namespaces and rights as they are shipped, and returns the
// way to the cluster with these alone.
func (o *operated) rights() *rest.Config {
	for _, name := range []string{"driver-namespaces.yaml", "namespaces.yaml", "rbac.yaml"} {
		for _, x := range o.read(readFile(o.t, filepath.Join(toolchain.Root(), "deploy", name))) {
			require.NoError(o.t, o.k.Create(o.t.Context(), x))
		}
	}
	path := filepath.Join(o.t.TempDir(), "operator.kubeconfig")
	require.NoError(o.t, o.site.WriteKubeconfigOf(o.t.Context(), o.ns, "vdo-operator", path))
	return must.Have(clientcmd.BuildConfigFromFlags("", path))(o.t)
}

// until waits for what operator and drivers come to.
func (o *operated) until(what string, done func(*v1alpha1.VDOConfig, *v1alpha1.DriverBundle) bool) (*v1alpha1.VDOConfig, *v1alpha1.DriverBundle) {
	o.t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		v, b := got(o.shop, &v1alpha1.VDOConfig{ObjectMeta: o.meta("site")}), o.driverBundle()
		if done(v, b) {
			return v, b
		}
		if time.Now().After(end) {
			out, _ := o.run("describe").both()
			o.t.Fatalf("waited in vain: %s\n%s", what, out)
		}
	}
}

func (o *operated) plan(args ...string) (planned, int) {
	out, code := o.run(append([]string{"plan", "-o", "json"}, args...)...).both()
	var p planned
	require.NoError(o.t, json.Unmarshal([]byte(out), &p), "%s", out)
	return p, code
}

// everything is the state of all that there is in the cluster that an operator or a person
// makes.
func (o *operated) everything() map[string]string {
	all := map[string]string{}
	for _, kind := range []string{"v1/ConfigMap", "v1/Secret", "v1/ServiceAccount", "apps/v1/Deployment", "apps/v1/DaemonSet", "storage.k8s.io/v1/CSIDriver",
		"rbac.authorization.k8s.io/v1/ClusterRole", "vdo.vmware.com/v1alpha1/VDOConfig", "vdo.vmware.com/v1alpha1/DriverBundle", "vdo.vmware.com/v1alpha1/VsphereCloudConfig"} {
		at := strings.LastIndex(kind, "/")
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(kind[:at])
		list.SetKind(kind[at+1:] + "List")
		require.NoError(o.t, o.k.List(o.t.Context(), list))
		for _, x := range list.Items {
			unstructured.RemoveNestedField(x.Object, "status")
			unstructured.RemoveNestedField(x.Object, "metadata", "resourceVersion")
			unstructured.RemoveNestedField(x.Object, "metadata", "managedFields")
			data := must.Have(json.Marshal(x.Object))(o.t)
			all[kind+" "+x.GetNamespace()+"/"+x.GetName()] = string(data)
		}
	}
	return all
}

// One site serves all of it, one after the other: an installation takes a while.
func TestPlanSaysWhatTheOperatorWouldDo(t *testing.T) {
	tier.Later(t, tier.Peers)
	o := operate(t)
	before := o.everything()
	o.plansForLaterVersions()
	second := o.sign("2", mirror.Bundle{Serial: 3, Releases: []string{"cpi@1.33.1", "cpi@1.34.0", "snapshot-controller@8.2.0", "csi@3.5.1", "csi@3.7.3"}})
	o.plansForABundle(second)
	o.refusesWhatTheOperatorRefuses()
	now := o.everything()
	for name, was := range before {
		require.Equal(t, was, now[name], name)
	}
	require.Len(t, now, len(before), "a plan writes nothing")
	o.holdsToTheFloor(second)
	o.isHeldByChecks(second)
	o.run("preflight", "--only", "image-platform", "-o", "json").is(0, `"id": "image-platform"`, `"action": "Pass"`)
	o.followsANewerMatrix()
	o.foretells(second)
}

func (o *operated) plansForLaterVersions() {
	t := o.t
	p, code := o.plan()
	require.Zero(t, code, "%+v", p)
	require.True(t, p.GoesOn)
	require.Len(t, p.Drivers, 3)
	require.Empty(t, p.Route[0].Moves)
	require.Empty(t, p.Plan.Steps)

	// Kubernetes first would leave the storage driver unsupported, and the bundle has no cloud
	// provider for it.
	p, code = o.plan("--k8s", "1.34")
	require.Equal(t, 8, code)
	require.Equal(t, "Kubernetes 1.34", p.Route[1].To)
	require.Len(t, p.Route[1].Lacks, 2)
	require.Contains(t, p.Route[1].Lacks[0], "csi@3.5.1 is installed and serves Kubernetes 1.31 to 1.33: upgrade it first")
	require.Equal(t, "vdo-bundle lock --drivers cpi,snapshot-controller,csi --k8s 1.33-1.34 --vsphere 8.0.3 -o lock.yaml", p.Fetch[0])
	require.Contains(t, p.Fetch[2], "/vdo/drivers:1 --key KEY.pub --ca-file CA.crt")
	for _, d := range p.Drivers {
		require.Equal(t, d.Driver != "snapshot-controller", len(d.Unsupported) > 0, "%+v", d)
	}
	o.run("plan", "--k8s", "1.32").is(2, "the cluster is of 1.33 already")
}

func (o *operated) plansForABundle(reference string) {
	t := o.t
	p, code := o.plan("--k8s", "v1.34.2", "--vsphere", "9.0", "--bundle", reference)
	require.Zero(t, code, "%+v", p)
	var order []string
	for _, h := range p.Route {
		if h.To != "" {
			order = append(order, h.To)
		}
		for _, m := range h.Moves {
			order = append(order, m.Driver+" "+m.From+" "+m.To)
		}
	}
	require.Equal(t, []string{"csi 3.5.1 3.7.3", "vCenter site 9.0.0", "Kubernetes 1.34", "cpi 1.33.1 1.34.0"}, order)
	out := o.run("plan", "--k8s", "1.34", "--vsphere", "site=9.0", "--bundle", reference).is(0, "signed by vdo",
		"csi@3.5.1 becomes unsupported: csi@3.5.1 runs, and does not fit: serves ",
		"1. the operator: csi@3.5.1 to 3.7.3", "2. you upgrade to vCenter site 9.0.0",
		"3. you upgrade to Kubernetes 1.34", "4. the operator: cpi@1.33.1 to 1.34.0", "nothing blocks it")
	require.NotContains(t, out, vcsim.Admin.Password)
	require.Contains(t, o.ok("plan", "--bundle", reference, "-o", "yaml"), "goesOn: true")
}

func (o *operated) refusesWhatTheOperatorRefuses() {
	later := mirror.Bundle{Serial: 3, Releases: []string{"cpi@1.33.1", "snapshot-controller@8.2.0", "csi@3.7.3"}}
	o.repo.Push(o.t, "unsigned", later)
	stranger, _ := mirror.NewKey(o.t)
	later.Serial = 4
	o.repo.Sign(o.t, o.repo.Push(o.t, "strange", later), stranger)
	for tag, want := range map[string]struct {
		code int
		says string
	}{"unsigned": {3, "signature"}, "strange": {3, "signature"}, "absent": {4, "absent"}} {
		o.run("plan", "--bundle", o.repo.Reference(tag)).is(want.code, want.says)
	}
	// The operator leaves what it accepted Ready while a mirror is away: that says nothing of this one.
	require.True(o.t, meta.IsStatusConditionTrue(o.driverBundle().Status.Conditions, v1alpha1.ConditionReady))
	for _, command := range [][]string{{"plan", "--bundle"}, {"matrix", "set", "--yes"}} {
		o.run(append(command, awayMirror)...).is(5, "connection refused")
	}
	require.NotEqual(o.t, awayMirror, o.driverBundle().Spec.Reference)
}

const awayMirror = "127.0.0.1:1/vdo/drivers:1"

// The operator's own floor is read from its Deployment, and holds here too.
func (o *operated) holdsToTheFloor(reference string) {
	t := o.t
	_, stranger := mirror.NewKey(t)
	floor := &corev1.ConfigMap{ObjectMeta: o.meta("vdo-trust-floor"), Data: map[string]string{"site.pub": stranger,
		"policy.yaml": "apiVersion: vdo.vmware.com/trust/v1\nkind: TrustPolicy\nthreshold: 1\nkeys:\n- id: site\n  file: site.pub\n"}}
	require.NoError(t, o.k.Create(t.Context(), floor))
	labels := map[string]string{"app": "vdo-operator"}
	d := &appsv1.Deployment{ObjectMeta: o.meta("vdo-operator"), Spec: appsv1.DeploymentSpec{
		Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "operator", Image: "vdo-operator", Args: []string{"--leader-elect", "--log-level", "info", "--trust-floor=/etc/vdo/trust-floor/policy.yaml"},
				VolumeMounts: []corev1.VolumeMount{{Name: "trust-floor", MountPath: "/etc/vdo/trust-floor"}}}},
			Volumes: []corev1.Volume{{Name: "trust-floor", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: floor.Name}}}}},
		}}}}
	require.NoError(t, o.k.Create(t.Context(), d))
	o.run("plan", "--bundle", reference).is(3, "--trust-floor")

	floor.Data["site.pub"] = o.public
	require.NoError(t, o.k.Update(t.Context(), floor))
	_, code := o.plan("--bundle", reference)
	require.Zero(t, code)

	require.NoError(t, o.k.Delete(t.Context(), floor))
	o.run("plan", "--bundle", reference).is(8, "mount it from a ConfigMap or a Secret that you may read")
	require.NoError(t, o.k.Delete(t.Context(), d))
}

// What the operator's checks found gates what it would hold back (FACTS.md §5, row 35:
// disk.EnableUUID is off).
func (o *operated) isHeldByChecks(reference string) {
	t := o.t
	vms := must.Have(o.site.VCenter.VMs(t.Context(), behind.Datacenter))(t)
	checked := func(uuid bool) {
		require.NoError(t, o.site.VCenter.SetDiskUUID(vms[0].Path, uuid))
		o.patch(&v1alpha1.VDOConfig{ObjectMeta: o.meta("site")}, fmt.Sprintf(`{"metadata":{"annotations":{%q:"%v"}}}`, v1alpha1.AnnotationRequestedAt, uuid))
		o.until("checked", func(v *v1alpha1.VDOConfig, _ *v1alpha1.DriverBundle) bool {
			return v.Status.Preflight != nil && slices.ContainsFunc(v.Status.Preflight.Results, func(r v1alpha1.PreflightResult) bool { return r.ID == "vm-disk-uuid" }) != uuid
		})
	}
	checked(false)
	p, code := o.plan("--bundle", reference)
	require.Equal(t, 8, code)
	require.Equal(t, "csi", p.Held[0].Driver)
	require.Contains(t, p.Held[0].Message, "vm-disk-uuid")
	require.Contains(t, p.Held[0].Do, "vdoctl vms fix")
	require.Equal(t, "vm-disk-uuid", p.Checks[0].ID)
	require.NotEmpty(t, p.Plan.Steps, "what would be done without is shown")
	p, code = o.plan()
	require.Zero(t, code, "it holds up nothing where nothing changes: %+v", p)
	require.NotEmpty(t, p.Held)
	checked(true)
}

// What is foretold of a bundle is what the operator says once it is the DriverBundle's.
func (o *operated) foretells(reference string) {
	t := o.t
	o.patch(&v1alpha1.VDOConfig{ObjectMeta: o.meta("site")}, `{"spec":{"upgrade":"Manual"}}`)
	foretold, code := o.plan("--bundle", reference)
	require.Equal(t, 8, code)
	require.Equal(t, "NotApproved", foretold.Held[0].Reason)
	require.Contains(t, foretold.Held[0].Do, "vdoctl upgrade approve REVISION")

	o.patch(&v1alpha1.DriverBundle{ObjectMeta: o.meta("site")}, `{"spec":{"reference":"`+reference+`"}}`)
	v, _ := o.until("the plan of the second bundle", func(v *v1alpha1.VDOConfig, _ *v1alpha1.DriverBundle) bool {
		return v.Status.Plan != nil && v.Status.Plan.Bundle == foretold.Bundle && v.Status.Candidate != nil
	})
	require.Equal(t, v.Status.Plan.Releases, foretold.Plan.Releases)
	require.Equal(t, v.Status.Plan.Actions, foretold.Plan.Actions)
	require.Equal(t, v.Status.Plan.Steps, foretold.Plan.Steps[:len(v.Status.Plan.Steps)])
	require.Equal(t, len(foretold.Plan.Steps), len(v.Status.Plan.Steps)+v.Status.Plan.Omitted)
	is, code := o.plan()
	require.Equal(t, 8, code)
	require.Equal(t, "vdoctl upgrade approve "+v.Status.Candidate.Name, is.Held[0].Do)
	require.Regexp(t, `^csi@3\.7\.3 waits for approval`, is.Held[0].Message, "what stays as it is waits for nothing")

	// What is older than what was accepted is refused.
	o.run("plan", "--bundle", o.repo.Reference("1")).is(3, "serial 1 is lower than 3")
	o.patch(&v1alpha1.VDOConfig{ObjectMeta: o.meta("site")}, `{"spec":{"drivers":[{"driver":"csi","version":"3.5.1"}]}}`)
	o.run("plan").has("csi is pinned: ")
}

// A newer matrix comes with a bundle that the operator accepts, and in no other way.
func (o *operated) followsANewerMatrix() {
	t := o.t
	same := o.sign("matrix", mirror.Bundle{Serial: 2, Releases: []string{"cpi@1.33.1", "snapshot-controller@8.2.0", "csi@3.5.1"}})
	for tag, code := range map[string]int{"unsigned": 3, "strange": 3, "absent": 4} {
		o.run("matrix", "set", o.repo.Reference(tag), "--yes").is(code)
	}
	require.Equal(t, o.repo.Reference("1"), o.driverBundle().Spec.Reference)
	o.run("matrix", "set", same).is(8, "no terminal to ask for confirmation")
	o.run("matrix", "set", same, "--dry-run").is(0,
		"spec.reference: "+o.repo.Reference("1")+" -> "+same,
		"matrix: serial 1 -> serial 2, expires 2099-01-01, signed by vdo")
	require.Equal(t, o.repo.Reference("1"), o.driverBundle().Spec.Reference)

	o.ok("update", "compatibility-matrix", "oci://"+same, "--yes")
	o.until("followed", func(_ *v1alpha1.VDOConfig, b *v1alpha1.DriverBundle) bool { return b.Status.HighestSerial == 2 })
	was := o.driverBundle().ResourceVersion
	require.Contains(t, o.ok("matrix", "set", same, "--yes"), "it follows that bundle already: serial 2")
	require.Equal(t, was, o.driverBundle().ResourceVersion)
	o.run("matrix", "set", o.repo.Reference("1"), "--yes").is(3, "serial 1 is lower than 2")
}

func (o *operated) driverBundle() *v1alpha1.DriverBundle {
	return got(o.shop, &v1alpha1.DriverBundle{ObjectMeta: o.meta("site")})
}

func (o *operated) patch(x client.Object, merge string) {
	require.NoError(o.t, o.k.Patch(o.t.Context(), x, client.RawPatch("application/merge-patch+json", []byte(merge))))
}
