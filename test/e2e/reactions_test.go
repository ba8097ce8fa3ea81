package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/site"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// What changes at a site is acted on, and nobody asks for it: here no resource is annotated.
// What the operator watches has to reach it as an event, since the interval of the VDOConfig
// is an hour; what it can only look for, the mirror, the vCenter and Kubernetes' version, at
// an interval of ten seconds. Each step starts from what the one before has left.
//
// It begins and ends with what a person does: vdoctl installs the operator, consents to an
// upgrade, goes back from it, and takes everything away, beside the operator that runs. The
// drivers are installed by the operator of an earlier version, which is upgraded first.
func TestReactions(t *testing.T) {
	tier.Later(t, tier.All)
	l := newLine(t, true, "cpi@1.33.1", "cpi@1.34.0", "csi@3.5.1", "csi@3.7.3", "snapshot-controller@8.2.0")
	l.deployed("cpi@1.33.1", "csi@3.5.1")
	upgraded := l.fromEarlier()
	l.beside()
	l.applyYAML(l.site.Resources(site.ResourceOptions{Namespace: namespace, Reference: l.reference("stable")}))
	l.interval(&v1alpha1.DriverBundle{}, "10s")
	l.interval(&v1alpha1.VsphereCloudConfig{}, "10s")
	l.interval(&v1alpha1.VDOConfig{}, "1h")
	l.installed("site", "1.33.1", "3.5.1")
	if upgraded {
		l.operatorIsUpgraded()
	}

	for _, step := range []struct {
		name string
		run  func(*job)
	}{
		{"a person who consents to an upgrade, and goes back", (*job).approvedAndTakenBack},
		{"a tag that moves to a newer bundle", (*job).movedTag},
		{"images that are named by upstream's paths", (*job).namedImages},
		{"a trust policy that changes", (*job).changedTrust},
		{"credentials that rotate", (*job).rotatedCredentials},
		{"a node that joins", (*job).newNode},
		{"a CA that changes", (*job).changedCA},
		{"topology that is switched on", (*job).topologySwitchedOn},
		{"a DriverBundle that is deleted", (*job).deletedBundle},
		{"a vCenter that is upgraded", (*job).upgradedVCenter},
		{"Kubernetes that is upgraded", (*job).upgradedKubernetes},
	} {
		t.Logf("reaction to %s", step.name)
		step.run(l)
	}
	require.Zero(t, l.strayed.Load(), "connections left the site")
	l.noSecretLeaks()
	l.deletedByVdoctl()
}

func (l *job) interval(o client.Object, every string) {
	l.spec(o, fmt.Sprintf(`{"interval":%q}`, every))
}

// spec merges into the spec of the resource named site.
func (l *job) spec(o client.Object, patch string) {
	l.t.Helper()
	o.SetName("site")
	o.SetNamespace(namespace)
	require.NoError(l.t, l.client.Patch(l.ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+patch+`}`))))
}

// movedTag pushes a bundle under another name, which is nothing to the operator, and moves
// the tag that it follows. The bundle is fetched as vdoctl says for the next Kubernetes, to
// which a later step upgrades.
func (l *job) movedTag() {
	l.t.Helper()
	before := l.acceptedDigest()
	l.fetchedAsPlanned("next", "--k8s", "1.34")
	l.run(l.isolated, "vdo-bundle push drivers.tar "+l.reference("next")+" --ca-file mirror-ca.crt --layout paths")
	require.Equal(l.t, before, l.acceptedDigest())
	transport := l.site.Mirror.Transport()
	defer transport.CloseIdleConnections()
	options := []remote.Option{remote.WithContext(l.ctx), remote.WithTransport(transport),
		remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: l.site.Mirror.Username, Password: l.site.Mirror.Password}))}
	pushed, err := name.NewTag(l.reference("next"))
	require.NoError(l.t, err)
	next, err := remote.Get(pushed, options...)
	require.NoError(l.t, err)
	stable, err := name.NewTag(l.reference("stable"))
	require.NoError(l.t, err)
	require.NoError(l.t, remote.Tag(stable, next, options...))
	l.installed("site", "1.33.1", "3.7.3")
	require.Equal(l.t, next.Digest.String(), l.acceptedDigest())
}

// namedImages has pods name their images as the other layout of the mirror has them, then as
// upstream does, for nodes with a mirror configuration, and back. The mirror has each of them.
func (l *job) namedImages() {
	l.t.Helper()
	_, before := l.workloads()
	mirror := l.site.Mirror.Host + "/vdo/drivers"
	for _, step := range []struct{ names, prefix, place string }{
		{"Paths", mirror + "/registry.k8s.io/", ""},
		{"Upstream", "registry.k8s.io/", mirror + "/"},
		{"Repository", mirror + "@", ""},
	} {
		l.spec(&v1alpha1.DriverBundle{}, fmt.Sprintf(`{"imageNames":%q}`, step.names))
		l.eventually("images are named "+step.names, func() string {
			images, _ := l.workloads()
			for _, i := range images {
				if !strings.HasPrefix(i, step.prefix) {
					return i
				}
			}
			return ""
		})
		l.installed("site", "1.33.1", "3.7.3")
		images, after := l.workloads()
		require.Equal(l.t, before, after)
		for i := range images {
			images[i] = step.place + images[i] // where the nodes' configuration leads
		}
		l.everyImageResolvesInTheMirror(images)
	}
}

// changedTrust takes the key out of the policy, which takes the bundle's acceptance and
// nothing that runs, and puts it back.
func (l *job) changedTrust() {
	l.t.Helper()
	l.run(l.connected, "vdo-bundle keygen -o other")
	trust := &corev1.ConfigMap{ObjectMeta: l.named("vdo-trust")}
	require.NoError(l.t, l.client.Get(l.ctx, client.ObjectKeyFromObject(trust), trust))
	right := trust.Data
	_, before := l.workloads()
	trust.Data = map[string]string{"other.pub": l.run(l.connected, "cat other.pub")}
	require.NoError(l.t, l.client.Update(l.ctx, trust))
	l.verified("False/")
	_, after := l.workloads()
	require.Equal(l.t, before, after)

	trust.Data = right
	require.NoError(l.t, l.client.Update(l.ctx, trust))
	l.verified("True/")
	l.installed("site", "1.33.1", "3.7.3")
}

func (l *job) verified(prefix string) {
	l.t.Helper()
	l.eventually("Verified is "+prefix, func() string {
		if c := l.bundleCondition("site", v1alpha1.ConditionVerified); !strings.HasPrefix(c, prefix) {
			return c
		}
		return ""
	})
}

// rotatedCredentials changes the password on both sides. The drivers get it once the vCenter
// has let it in; the old one is tried once at most after it ceased to be right.
func (l *job) rotatedCredentials() {
	l.t.Helper()
	const password = "An-other Right-Pass word#2"
	l.site.VCenter.SetPassword(vcenter.Admin.Username, password)
	secret := &corev1.Secret{ObjectMeta: l.named("vcenter-account")}
	require.NoError(l.t, l.client.Patch(l.ctx, secret, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"stringData":{"password":%q}}`, password))))
	l.driversHave(password)
	require.LessOrEqual(l.t, l.site.VCenter.Refused(vcenter.Admin.Username), 1)
	l.installed("site", "1.33.1", "3.7.3")
}

// driversHave waits until a text is in the configuration of both drivers.
func (l *job) driversHave(text string) {
	l.t.Helper()
	l.eventually("the drivers' configuration has it", func() string {
		for _, key := range []client.ObjectKey{{Namespace: csiNamespace, Name: "vsphere-config-secret"}, {Namespace: "kube-system", Name: "vsphere-cloud-secret"}} {
			if !l.has(key, text) {
				return key.String() + " has not"
			}
		}
		return ""
	})
}

func (l *job) has(key client.ObjectKey, text string) bool {
	l.t.Helper()
	var s corev1.Secret
	if err := l.client.Get(l.ctx, key, &s); err != nil {
		return false
	}
	for _, v := range s.Data {
		if strings.Contains(string(v), text) {
			return true
		}
	}
	return false
}

// newNode joins a further virtual machine.
func (l *job) newNode() {
	l.t.Helper()
	vms, err := l.site.VCenter.VMs(l.ctx, site.Datacenter)
	require.NoError(l.t, err)
	const joins = "worker-3"
	require.NoError(l.t, l.site.VCenter.Ready(vms[len(l.site.Machines)].Path, joins))
	require.NoError(l.t, l.site.Cluster.AddNode(l.ctx, cluster.Node{Name: joins, SystemUUID: vms[len(l.site.Machines)].UUID}))
	l.eventually("the node is initialised and registered, and counts", func() string {
		var node corev1.Node
		var plugin storagev1.CSINode
		var config v1alpha1.VDOConfig
		for name, o := range map[string]client.Object{joins: &node, "/" + joins: &plugin, namespace + "/site": &config} {
			ns, n, _ := strings.Cut(name, "/")
			if n == "" {
				ns, n = "", name
			}
			if err := l.client.Get(l.ctx, client.ObjectKey{Namespace: ns, Name: n}, o); err != nil {
				return err.Error()
			}
		}
		if !strings.HasPrefix(node.Spec.ProviderID, "vsphere://") || len(plugin.Spec.Drivers) != 1 || config.Status.NodesReady != "4/4" {
			return fmt.Sprintf("providerID %q, drivers %v, ready %s", node.Spec.ProviderID, plugin.Spec.Drivers, config.Status.NodesReady)
		}
		return ""
	})
	l.installed("site", "1.33.1", "3.7.3")
}

// changedCA gives the vCenter a certificate of another authority: that is said, and once the
// site trusts it the drivers do.
func (l *job) changedCA() {
	l.t.Helper()
	ca, err := l.site.VCenter.Reissue()
	require.NoError(l.t, err)
	l.vcenterSays("False/CertificateInvalid")
	config := &corev1.ConfigMap{ObjectMeta: l.named("vcenter-ca")}
	require.NoError(l.t, l.client.Get(l.ctx, client.ObjectKeyFromObject(config), config))
	config.Data = map[string]string{"ca.crt": string(ca)}
	require.NoError(l.t, l.client.Update(l.ctx, config))
	l.vcenterSays("True/")
	l.eventually("the storage driver trusts it", func() string {
		if !l.has(client.ObjectKey{Namespace: csiNamespace, Name: "vsphere-config-secret"}, strings.TrimSpace(string(ca))) {
			return "not yet"
		}
		return ""
	})
	l.installed("site", "1.33.1", "3.7.3")
}

func (l *job) vcenterSays(prefix string) {
	l.t.Helper()
	l.eventually("the VsphereCloudConfig is "+prefix, func() string {
		var v v1alpha1.VsphereCloudConfig
		if err := l.client.Get(l.ctx, client.ObjectKey{Namespace: namespace, Name: "site"}, &v); err != nil {
			return err.Error()
		}
		c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || !strings.HasPrefix(fmt.Sprintf("%s/%s", c.Status, c.Reason), prefix) {
			return fmt.Sprintf("%+v", c)
		}
		return ""
	})
}

// topologySwitchedOn: the provisioner is told, and nodes that had registered without
// topology register anew, which takes other pods.
func (l *job) topologySwitchedOn() {
	l.t.Helper()
	for _, category := range []string{"k8s-region", "k8s-zone"} {
		require.NoError(l.t, l.site.VCenter.Tag(l.ctx, category, "a", site.Datacenter))
	}
	l.spec(&v1alpha1.VDOConfig{}, `{"storageProvider":{"topologyCategories":["k8s-region","k8s-zone"]}}`)
	l.eventually("every node is registered with topology", func() string {
		var nodes storagev1.CSINodeList
		if err := l.client.List(l.ctx, &nodes); err != nil {
			return err.Error()
		}
		for _, n := range nodes.Items {
			for _, d := range n.Spec.Drivers {
				if len(d.TopologyKeys) != 2 {
					return fmt.Sprintf("%s: %v", n.Name, d.TopologyKeys)
				}
			}
		}
		return ""
	})
	controller := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: csiNamespace, Name: "vsphere-csi-controller"}}
	require.NoError(l.t, l.client.Get(l.ctx, client.ObjectKeyFromObject(controller), controller))
	containers := controller.Spec.Template.Spec.Containers
	provisioner := containers[slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == "csi-provisioner" })]
	require.Contains(l.t, provisioner.Args, "--strict-topology")
	l.installed("site", "1.33.1", "3.7.3")
}

// deletedBundle takes the DriverBundle away, and the mirror besides: once the garbage
// collector has been there, an operator that remembers nothing still repairs what runs.
func (l *job) deletedBundle() {
	l.t.Helper()
	was := &v1alpha1.DriverBundle{}
	require.NoError(l.t, l.client.Get(l.ctx, client.ObjectKey{Namespace: namespace, Name: "site"}, was))
	label := strings.TrimPrefix(was.Status.Digest, "sha256:")[:63]
	require.NoError(l.t, l.client.Delete(l.ctx, was.DeepCopy()))
	l.eventually("the copy has lost the DriverBundle as its owner, and stays", func() string {
		var copies corev1.ConfigMapList
		if err := l.client.List(l.ctx, &copies, client.InNamespace(namespace), client.MatchingLabels{"vdo.vmware.com/digest": label}); err != nil {
			return err.Error()
		}
		require.NotEmpty(l.t, copies.Items)
		for _, o := range copies.Items[0].OwnerReferences {
			if o.Kind == "DriverBundle" {
				return "it has it still"
			}
		}
		return ""
	})
	l.stopOperator()
	l.site.Mirror.Fail(registry.Fault{Match: registry.Match{Path: "/"}, Reset: true})
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vsphere-cloud-controller-manager"}}
	require.NoError(l.t, l.client.Delete(l.ctx, set))
	l.startOperator()
	l.eventually("the cloud provider is there again", func() string {
		config := &v1alpha1.VDOConfig{}
		require.NoError(l.t, l.client.Get(l.ctx, client.ObjectKey{Namespace: namespace, Name: "site"}, config))
		if err := l.client.Get(l.ctx, client.ObjectKeyFromObject(set), set); err != nil {
			return fmt.Sprintf("%s, conditions %+v", err, config.Status.Conditions)
		}
		return ""
	})
	l.site.Mirror.Heal()
	l.create(&v1alpha1.DriverBundle{ObjectMeta: l.named("site"), Spec: was.Spec})
	l.installed("site", "1.33.1", "3.7.3")
}

// upgradedVCenter finds the vCenter too old for the drivers, as one that was restored from a
// backup: that is said, and what runs stays. Then it is upgraded.
func (l *job) upgradedVCenter() {
	l.t.Helper()
	_, before := l.workloads()
	l.site.VCenter.SetVersion("6.7.0")
	l.says(v1alpha1.ConditionResolved, "csi@", "needs vSphere 7.0.0 and later", "6.7.0")
	_, after := l.workloads()
	require.Equal(l.t, before, after)
	l.site.VCenter.SetVersion("8.0.2")
	l.installed("site", "1.33.1", "3.7.3")
	var v v1alpha1.VsphereCloudConfig
	require.NoError(l.t, l.client.Get(l.ctx, client.ObjectKey{Namespace: namespace, Name: "site"}, &v))
	require.Equal(l.t, "8.0.2", v.Status.Version)
}

// upgradedKubernetes: the cloud provider follows. Nothing tells an operator that the API
// server it speaks to is another one, so it has to look.
func (l *job) upgradedKubernetes() {
	l.t.Helper()
	l.interval(&v1alpha1.VDOConfig{}, "10s")
	l.installed("site", "1.33.1", "3.7.3")
	require.NoError(l.t, l.site.Cluster.Upgrade(context.WithoutCancel(l.ctx), toolchain.NextKubernetes))
	// The vCenter was upgraded just now, for which an upgrade waits, unless it is told not to.
	l.eventually("the upgrade waits for the vCenter", func() string {
		var config v1alpha1.VDOConfig
		require.NoError(l.t, l.client.Get(l.ctx, client.ObjectKey{Namespace: namespace, Name: "site"}, &config))
		if c := config.Status.Candidate; c == nil || c.Reason != "Interlocked" || !strings.Contains(c.Message, "vCenter site is of version 8.0.2") {
			return fmt.Sprintf("%+v", c)
		}
		return ""
	})
	l.spec(&v1alpha1.VDOConfig{}, `{"upgradePolicy":{"ignoreInterlocks":["VCenters"]}}`)
	l.installed("site", "1.34.0", "3.7.3")
}
