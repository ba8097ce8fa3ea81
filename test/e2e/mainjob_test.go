package e2e

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/readme"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/site"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// The whole line in one world, step after step: each step starts from what the one
// before has left, as at a real site.
func TestMainJob(t *testing.T) {
	tier.Later(t, tier.Peers)
	l := newLine(t, false, "cpi@1.33.1", "cpi@1.34.0", "csi@3.5.1", "csi@3.7.3", "snapshot-controller@8.2.0")
	l.followTheGuide("cpi@1.33.1", "csi@3.5.1")

	l.installed("site", "1.33.1", "3.5.1")
	images, before := l.workloads()
	l.everyImageResolvesInTheMirror(images)

	// A bundle with a newer CSI under the same tag: upgraded in place.
	l.deliver("stable", "vdo", "cpi@1.33.1", "csi@3.7.3")
	l.ask(&v1alpha1.DriverBundle{}, "site")
	l.installed("site", "1.33.1", "3.7.3")
	images, after := l.workloads()
	l.everyImageResolvesInTheMirror(images)
	require.Equal(t, before, after, "the same DaemonSets and Deployments, changed in place")

	// Kubernetes moves on: the bundle in the mirror has no CPI for it, what runs stays.
	require.NoError(t, l.site.Cluster.Upgrade(l.ctx, toolchain.NextKubernetes))
	l.ask(&v1alpha1.VDOConfig{}, "site")
	l.says(&v1alpha1.VDOConfig{}, v1alpha1.ConditionResolved, "False/", "cpi@1.33.1: kubernetes")
	_, still := l.workloads()
	require.Equal(t, before, still, "nothing is removed because nothing better is there")

	// The site goes over from the key to certificates of its own authority, and the bundle
	// with the CPI that is missing comes signed by one.
	l.trustCertificates()
	l.deliver("stable", "signer", "cpi@1.33.1", "cpi@1.34.0", "csi@3.7.3")
	l.ask(&v1alpha1.DriverBundle{}, "site")
	l.installed("site", "1.34.0", "3.7.3")
	l.says(&v1alpha1.DriverBundle{}, v1alpha1.ConditionVerified, "True/Succeeded: signed by corp")

	removing := readme.Section(l.t, "deploy/docs/install.md", "Remove")
	l.deletionIsRefusedWhileVolumesAreThere(removing[0])
	require.Zero(t, l.strayed.Load(), "connections left the site")
	l.noSecretLeaks()
	l.removed(removing[1 : len(removing)-1]) // the last one is the way out of a wrong order
}

func (l *job) acceptedDigest() string {
	digest := theSites(l, &v1alpha1.DriverBundle{}).Status.Digest
	require.NotEmpty(l.t, digest)
	return digest
}

func (l *job) everyImageResolvesInTheMirror(images []string) {
	require.NotEmpty(l.t, images)
	for _, image := range images {
		require.NoError(l.t, l.site.Mirror.Serves(image))
	}
}

// removed takes the operator away by the guide's commands: what they name is gone, and
// with it the operator's namespace; the storage driver's stays.
func (l *job) removed(commands []readme.Command) {
	l.t.Helper()
	admin := l.kubectl()
	l.typed(admin, commands[0])
	l.stopOperator() // as its Deployment is gone
	for _, c := range commands[1:] {
		l.typed(admin, c)
	}
	l.nothingOfTheOperatorIsLeft()
}

// nothingOfTheOperatorIsLeft: what its manifests name is not there.
func (l *job) nothingOfTheOperatorIsLeft() {
	files := must.Have(filepath.Glob(filepath.Join(toolchain.Root(), "deploy", "crds", "*.yaml")))(l.t)
	for _, name := range []string{"namespaces.yaml", "rbac.yaml", "operator.yaml", "networkpolicy.yaml"} {
		files = append(files, filepath.Join(toolchain.Root(), "deploy", name))
	}
	for _, file := range files {
		for _, o := range must.Have(cluster.Objects(must.Have(os.ReadFile(file))(l.t)))(l.t) {
			err := l.client.Get(l.ctx, client.ObjectKeyFromObject(o), o)
			require.True(l.t, apierrors.IsNotFound(err), "%s %s: %v", o.GetObjectKind().GroupVersionKind().Kind, o.GetName(), err)
		}
	}
	require.NoError(l.t, l.client.Get(l.ctx, client.ObjectKey{Name: "vmware-system-csi"}, &corev1.Namespace{}))
}

// deletionIsRefusedWhileVolumesAreThere deletes by the guide's command, which returns once
// the drivers are removed.
func (l *job) deletionIsRefusedWhileVolumesAreThere(deletes readme.Command) {
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.vsphere.vmware.com", VolumeHandle: "handle"}},
	}}
	l.create(volume)
	config := &v1alpha1.VDOConfig{ObjectMeta: l.named("site")}
	returned := make(chan error, 1)
	go func() {
		_, err := l.kubectl().Run(l.ctx, "bash", "-ec", deletes.Text)
		returned <- err
	}()
	l.says(config, v1alpha1.ConditionReady, "PersistentVolume")
	images, _ := l.workloads()
	require.NotEmpty(l.t, images, "the drivers are still there")
	require.Empty(l.t, returned, "the command waits")

	require.NoError(l.t, l.client.Delete(l.ctx, volume))
	volume.Finalizers = nil
	_ = l.client.Patch(l.ctx, volume, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
	l.ask(&v1alpha1.VDOConfig{}, "site")
	l.eventually("the drivers are removed", func() string {
		if err := l.client.Get(l.ctx, client.ObjectKeyFromObject(config), config); !apierrors.IsNotFound(err) {
			return "the VDOConfig is still there"
		}
		if images, _ := l.workloads(); len(images) > 0 {
			return strings.Join(images, " ")
		}
		return ""
	})
	require.NoError(l.t, <-returned)
}

// noSecretLeaks looks for every password of the run where none may be: in the log, and in what the site's programs
// have left in the folder for temporary files.
func (l *job) noSecretLeaks() {
	log := must.Have(os.ReadFile(l.path("site/operator.log")))(l.t)
	written := map[string]string{"log": string(log)}
	require.NoError(l.t, filepath.WalkDir(l.path("site/tmp"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		written[path] = string(data)
		return err
	}))
	secrets := append(l.site.VCenter.Accepted(vcenter.Admin.Username), vcenter.Admin.Password, l.site.Mirror.Password, keyPassword)
	for where, text := range written {
		for _, secret := range secrets {
			require.NotEmpty(l.t, secret)
			quoted := must.Have(json.Marshal(secret))(l.t)
			for _, form := range []string{secret, string(quoted[1 : len(quoted)-1])} {
				require.False(l.t, strings.Contains(text, form), "a password is in %s", where)
			}
		}
	}
}

// The operator's image, which travels in the bundle. Nothing runs it here: the cluster's
// nodes only answer, so the program runs beside the cluster, with its account's rights.
const operatorImage = "registry.k8s.io/vdo/vdo-operator:v1.0.0"

// followTheGuide installs the operator and points it at the site by the commands of
// deploy/docs/install.md, "Step by step", word by word, with deploy/samples/site.yaml. Only what
// they call yours is the site's: lines of site.yaml, and the address of the mirror.
func (l *job) followTheGuide(releases ...string) {
	l.bundleWithOperator(releases...)
	require.NoError(l.t, os.WriteFile(l.path("site/vcenter-password"), []byte(vcenter.Admin.Password), 0o600))
	deploy := filepath.Join(toolchain.Root(), "deploy")
	require.NoError(l.t, os.Symlink(deploy, l.path("site/deploy")))
	sample := must.Have(os.ReadFile(filepath.Join(deploy, "samples", "site.yaml")))(l.t)
	require.NoError(l.t, os.WriteFile(l.path("site/site.yaml"), l.yours(string(sample), map[string]string{
		"  reference: ":   l.reference("stable"),
		"  vcIp: ":        l.site.VCenter.Host,
		"  port: ":        fmt.Sprint(l.site.VCenter.Port),
		"  datacenters: ": "[site/prod/east]",
	}), 0o600))

	sh := l.kubectl()
	for _, c := range readme.Section(l.t, "deploy/docs/install.md", "Step by step") {
		if strings.Contains(c.Text, "kubectl apply -f site.yaml") {
			l.beside()
		}
		l.typed(sh, c)
	}
}

// kubectl is a shell with the administrator's kubeconfig.
func (l *job) kubectl() *shell.Shell {
	kubectl := toolchain.Path(l.t, "kubectl")
	return &shell.Shell{Dir: l.isolated.Dir, Env: append(slices.Clone(l.isolated.Env),
		"KUBECONFIG="+l.site.Cluster.Kubeconfig(), "PATH="+bin+":"+filepath.Dir(kubectl)+":"+os.Getenv("PATH"))}
}

// typed runs a command of a guide as it is, but for the mirror's name. A variable that
// it sets stays set.
func (l *job) typed(sh *shell.Shell, c readme.Command) {
	words := strings.ReplaceAll(c.Text, "registry.site.example", l.site.Mirror.Host)
	if name, value, ok := strings.Cut(words, "="); ok && !strings.Contains(name, " ") {
		sh.Env = append(sh.Env, name+"="+value)
		return
	}
	out, err := sh.Run(l.ctx, "bash", "-o", "pipefail", "-ec", words)
	require.NoError(l.t, err, "%s\n%s", c, out)
}

// yours fills in the lines of a sample that are marked so, and no others.
func (l *job) yours(sample string, values map[string]string) []byte {
	lines := strings.Split(sample, "\n")
	for i, text := range lines {
		if !strings.Contains(text, "# yours") {
			continue
		}
		key, _, _ := strings.Cut(text, ": ")
		value, ok := values[key+": "]
		require.True(l.t, ok, "the sample's line %q is marked and has no value here", text)
		lines[i] = key + ": " + value
		delete(values, key+": ")
	}
	require.Empty(l.t, values, "not marked in the sample")
	return []byte(strings.Join(lines, "\n"))
}

// bundleWithOperator carries drivers.tar and vdo.pub across the gap.
func (l *job) bundleWithOperator(releases ...string) {
	image := must.Have(images.Build(images.Spec{Seed: 7, Platforms: images.Linux, Layers: []int64{4 << 10}}))(l.t)
	must.Have(image.Push(l.ctx, l.upstream.Registry, operatorImage))(l.t)
	chosen := []string{"--operator", operatorImage}
	for _, r := range releases {
		chosen = append(chosen, "--release", r)
	}
	l.run(l.connected, "vdo-bundle lock -o lock.yaml --replace", append(chosen, l.upstream.Flags()...)...)
	l.run(l.connected, "vdo-bundle pull --lock lock.yaml --sign-key vdo.key -o drivers.tar", l.upstream.Flags()...)
	l.carry("drivers.tar")
}

// beside runs the program that the guide's Deployment would run, once its account is there.
func (l *job) beside() {
	require.NoError(l.t, l.site.WriteKubeconfigOf(l.ctx, namespace, "vdo-operator", l.path("site/operator.kubeconfig")))
	l.startOperator()
}

// The steps of the earlier operator's users, with the resources that they have:
// a ConfigMap that says where the matrix is, a Secret in kube-system, a
// VsphereCloudConfig with a thumbprint, a VDOConfig. Only the URL is another one.
func TestThePredecessorsFourSteps(t *testing.T) {
	tier.Later(t, tier.All)
	l := newLine(t, true, "cpi@1.33.1", "csi@3.5.1", "snapshot-controller@8.2.0")
	l.deliver("stable", "vdo", "cpi@1.33.1", "csi@3.5.1")
	l.prepare()
	l.startOperator()

	// The one thing that a test's vCenter cannot have is port 443.
	l.applyYAML(fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: comp-matrix-config, namespace: %[1]s}
data:
  versionConfigURL: "oci://%[2]s"
  auto-upgrade: disabled
---
apiVersion: v1
kind: Secret
metadata: {name: vc-creds, namespace: kube-system}
type: kubernetes.io/basic-auth
stringData:
  username: %[3]q
  password: %[4]q
---
apiVersion: vdo.vmware.com/v1alpha1
kind: VsphereCloudConfig
metadata: {name: vsphere-sample, namespace: %[1]s}
spec:
  vcIp: %[5]s
  port: %[6]d
  insecure: false
  credentials: vc-creds
  thumbprint: %[7]q
  datacenters: [%[8]q]
---
apiVersion: vdo.vmware.com/v1alpha1
kind: VDOConfig
metadata: {name: vdo-sample, namespace: %[1]s}
spec:
  cloudProvider:
    vsphereCloudConfigs:
      - vsphere-sample
  storageProvider:
    vsphereCloudConfig: vsphere-sample
    clusterDistribution: "k3s"
    fileVolumes:
      vsanDataStoreUrl: ["ds:///vmfs/volumes/vsan:1/"]
      netPermissions:
        - ips: "*"
          permissions: READ_WRITE
          rootSquash: true
`, namespace, l.reference("stable"), vcenter.Admin.Username, vcenter.Admin.Password, l.site.VCenter.Host,
		l.site.VCenter.Port, l.site.VCenter.SHA1, strings.TrimPrefix(site.Datacenter, "/")))
	l.installed("vdo-sample", "1.33.1", "3.5.1")
	require.Zero(t, l.strayed.Load(), "connections left the site")
}
