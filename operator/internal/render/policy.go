package render

import (
	"regexp"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// policy is what the manifests of a driver may hold. Whoever can sign a bundle
// can run its images on every node; the policy keeps a manifest from reaching
// further than the driver is known to do. It was written from upstream's
// manifests: a release that needs more needs a look, and a line here.
type policy struct {
	// objects by "Kind namespace/name" or "Kind name", anchored.
	objects []*regexp.Regexp
	// accounts are the ServiceAccounts that pods and bindings may name.
	accounts []string
	// users that bindings may name besides; foreign roles that they may bind.
	users, foreignRoles []string
	// grants are rights that are refused otherwise, by the name of the role.
	grants map[string][]grant
	// aggregated roles may add their rules to the built-in view, edit and admin.
	aggregated *regexp.Regexp
	pods       map[string]podPolicy // by "Kind namespace/name"
	// services that webhooks, CRDs and APIServices may send requests to.
	services []string
	// webhookGroups are the API groups whose objects webhooks may see.
	webhookGroups []string
}

// grant permits verbs on a resource; with names, only on those.
type grant struct {
	group, resource string
	verbs           []string
	names           *regexp.Regexp
}

// podPolicy is what a workload's pods may do beyond a plain pod.
type podPolicy struct {
	account      string
	hostNetwork  bool
	hostProcess  bool // Windows
	privileged   []string
	capabilities map[string][]string // by container
	hostPaths    []string            // exact
	secrets      []string            // mounted
	// commands that containers may name in place of their image's own, and probes may
	// run: whole lines, or the first word before flags.
	commands []string
}

func patterns(exprs ...string) []*regexp.Regexp {
	out := make([]*regexp.Regexp, len(exprs))
	for i, e := range exprs {
		out[i] = regexp.MustCompile("^(?:" + e + ")$")
	}
	return out
}

// policyOf returns the policy of a driver, or nil for a driver that is not known.
func policyOf(d matrix.Driver) *policy {
	switch d {
	case matrix.CPI:
		return cpiPolicy()
	case matrix.CSI:
		return csiPolicy()
	case matrix.SnapshotController:
		return snapshotPolicy()
	case matrix.CNI:
		return antreaPolicy()
	}
	return nil
}

func cpiPolicy() *policy {
	return &policy{
		objects: patterns(
			`ServiceAccount kube-system/cloud-controller-manager`,
			`Secret kube-system/vsphere-cloud-secret`,
			`ConfigMap kube-system/vsphere-cloud-config`,
			`RoleBinding kube-system/servicecatalog\.k8s\.io:apiserver-authentication-reader`,
			`ClusterRole(Binding)? system:cloud-controller-manager`,
			`DaemonSet kube-system/vsphere-cloud-controller-manager`,
		),
		accounts:     []string{"kube-system/cloud-controller-manager"},
		users:        []string{"cloud-controller-manager"},
		foreignRoles: []string{"Role kube-system/extension-apiserver-authentication-reader"},
		grants: map[string][]grant{"system:cloud-controller-manager": {
			{group: "", resource: "nodes", verbs: []string{"*"}},
			{group: "", resource: "secrets", verbs: []string{"get", "list", "watch"}},
			{group: "", resource: "serviceaccounts", verbs: []string{"create", "update"}},
			{group: "", resource: "persistentvolumes", verbs: []string{"update"}},
		}},
		pods: map[string]podPolicy{
			"DaemonSet kube-system/vsphere-cloud-controller-manager": {
				account: "cloud-controller-manager", hostNetwork: true,
			},
		},
	}
}

func csiPolicy() *policy {
	volumes := []string{"create", "update", "patch", "delete"}
	return &policy{
		objects: patterns(
			`Namespace vmware-system-csi`,
			`CSIDriver csi\.vsphere\.vmware\.com`,
			`ServiceAccount vmware-system-csi/vsphere-csi-(controller|node|webhook)`,
			`ClusterRole vsphere-csi-(controller-role|node-cluster-role|webhook-cluster-role)`,
			`ClusterRoleBinding vsphere-csi-(controller-binding|node-cluster-role-binding|webhook-cluster-role-binding)`,
			`Role vmware-system-csi/vsphere-csi-(node|webhook)-role`,
			`RoleBinding vmware-system-csi/vsphere-csi-(node-binding|webhook-role-binding)`,
			`ConfigMap vmware-system-csi/internal-feature-states\.csi\.vsphere\.vmware\.com`,
			`Service vmware-system-csi/(vsphere-csi-controller|vsphere-webhook-svc)`,
			`Deployment vmware-system-csi/vsphere-csi-(controller|webhook)`,
			`DaemonSet vmware-system-csi/vsphere-csi-node(-windows)?`,
			`ValidatingWebhookConfiguration validation\.csi\.vsphere\.vmware\.com`,
			// Part of releases up to 3.3 (as a file until 3.7); never installed.
			`ServiceAccount kube-system/snapshot-webhook`,
			`ClusterRole snapshot-webhook-runner`,
			`ClusterRoleBinding snapshot-webhook-role`,
			`Service kube-system/snapshot-validation-service`,
			`Deployment kube-system/snapshot-validation-deployment`,
			`ValidatingWebhookConfiguration validation-webhook\.snapshot\.storage\.k8s\.io`,
		),
		accounts: []string{
			"vmware-system-csi/vsphere-csi-controller", "vmware-system-csi/vsphere-csi-node",
			"vmware-system-csi/vsphere-csi-webhook", "kube-system/snapshot-webhook",
		},
		grants: map[string][]grant{"vsphere-csi-controller-role": {
			{group: "", resource: "configmaps", verbs: []string{"create"}},
			{group: "", resource: "persistentvolumes", verbs: volumes},
			{group: "apiextensions.k8s.io", resource: "customresourcedefinitions", verbs: []string{"create", "update"}},
		}},
		pods: map[string]podPolicy{
			"Deployment vmware-system-csi/vsphere-csi-controller": {
				account: "vsphere-csi-controller", secrets: []string{CSISecret},
			},
			"Deployment vmware-system-csi/vsphere-csi-webhook": {
				account: "vsphere-csi-webhook", secrets: []string{WebhookSecret},
			},
			"Deployment kube-system/snapshot-validation-deployment": {
				account: "snapshot-webhook", secrets: []string{"snapshot-webhook-certs"},
			},
			"DaemonSet vmware-system-csi/vsphere-csi-node": {
				account: "vsphere-csi-node", hostNetwork: true,
				privileged:   []string{"vsphere-csi-node"},
				capabilities: map[string][]string{"vsphere-csi-node": {"SYS_ADMIN"}},
				commands:     []string{"/csi-node-driver-registrar"},
				hostPaths: []string{
					"/var/lib/kubelet", "/var/lib/kubelet/plugins_registry",
					"/var/lib/kubelet/plugins/csi.vsphere.vmware.com",
					"/dev", "/sys/block", "/sys/devices",
				},
			},
			"DaemonSet vmware-system-csi/vsphere-csi-node-windows": {
				account: "vsphere-csi-node", hostNetwork: true, hostProcess: true,
				commands: []string{"csi.exe", "csi-node-driver-registrar.exe", "/csi-node-driver-registrar.exe", "livenessprobe.exe"},
				hostPaths: []string{
					`\var\lib\kubelet`, `C:\var\lib\kubelet`, `C:\var\lib\kubelet\`,
					`C:\var\lib\kubelet\plugins_registry\`,
					`C:\var\lib\kubelet\plugins\csi.vsphere.vmware.com\`,
					`\\.\pipe\csi-proxy-disk-v1`, `\\.\pipe\csi-proxy-volume-v1`,
					`\\.\pipe\csi-proxy-filesystem-v1`, `\\.\pipe\csi-proxy-system-v1alpha1`,
				},
			},
		},
		services: []string{
			"vmware-system-csi/vsphere-webhook-svc", "kube-system/snapshot-validation-service",
		},
		webhookGroups: []string{"", "storage.k8s.io", "snapshot.storage.k8s.io"},
	}
}

func snapshotPolicy() *policy {
	return &policy{
		objects: patterns(
			`CustomResourceDefinition volumesnapshot(classe|content)?s\.snapshot\.storage\.k8s\.io`,
			`CustomResourceDefinition volumegroupsnapshot(classe|content)?s\.groupsnapshot\.storage\.k8s\.io`,
			`ServiceAccount kube-system/snapshot-controller`,
			`ClusterRole snapshot-controller-runner`,
			`ClusterRoleBinding snapshot-controller-role`,
			`Role kube-system/snapshot-controller-leaderelection`,
			`RoleBinding kube-system/snapshot-controller-leaderelection`,
			`Deployment kube-system/snapshot-controller`,
		),
		accounts: []string{"kube-system/snapshot-controller"},
		pods: map[string]podPolicy{
			"Deployment kube-system/snapshot-controller": {account: "snapshot-controller"},
		},
	}
}

func antreaPolicy() *policy {
	own := regexp.MustCompile(`^antrea-[a-z-]+$`)
	read := []string{"get", "list", "watch"}
	return &policy{
		objects: patterns(
			`CustomResourceDefinition [a-z]+\.crd\.antrea\.io`,
			`ServiceAccount kube-system/(antrea-agent|antctl|antrea-controller)`,
			`Secret kube-system/(antrea-agent|antctl)-service-account-token`,
			`ConfigMap kube-system/antrea-config`,
			`ClusterRole (antrea-agent|antctl|antrea-controller|antrea-cluster-identity-reader)`,
			`ClusterRole aggregate-(antrea-policies|traceflows|antrea-clustergroups)-(edit|view)`,
			`ClusterRoleBinding (antrea-agent|antctl|antrea-controller)`,
			`Service kube-system/antrea`,
			`DaemonSet kube-system/antrea-agent`,
			`Deployment kube-system/antrea-controller`,
			`APIService v[0-9a-z]+\.(controlplane|system|stats)\.antrea\.io`,
			`MutatingWebhookConfiguration crdmutator\.antrea\.io`,
			`ValidatingWebhookConfiguration crdvalidator\.antrea\.io`,
		),
		accounts: []string{"kube-system/antrea-agent", "kube-system/antctl", "kube-system/antrea-controller"},
		grants: map[string][]grant{
			"antctl": {{resource: "/debug/pprof/*", verbs: []string{"get"}}},
			"antrea-agent": {
				{resource: "secrets", verbs: read, names: own},
				{group: "certificates.k8s.io", resource: "certificatesigningrequests", verbs: []string{"create"}},
			},
			"antrea-controller": {
				{resource: "nodes", verbs: []string{"patch"}},
				{resource: "secrets", verbs: []string{"create"}},
				{resource: "secrets", verbs: append([]string{"update"}, read...), names: own},
				{resource: "configmaps", verbs: []string{"create"}},
				{resource: "configmaps", verbs: []string{"update"}, names: own},
				{group: "admissionregistration.k8s.io", resource: "mutatingwebhookconfigurations", verbs: []string{"update"}},
				{group: "admissionregistration.k8s.io", resource: "validatingwebhookconfigurations", verbs: []string{"update"}},
				{group: "apiextensions.k8s.io", resource: "customresourcedefinitions", verbs: []string{"update"}},
				{group: "certificates.k8s.io", resource: "certificatesigningrequests/approval", verbs: []string{"update"}},
				{group: "certificates.k8s.io", resource: "certificatesigningrequests/status", verbs: []string{"update"}},
				{group: "certificates.k8s.io", resource: "signers", verbs: []string{"approve", "sign"}, names: regexp.MustCompile(`^antrea\.io/antrea-agent-ipsec-tunnel$`)},
				{group: "apiregistration.k8s.io", resource: "apiservices", verbs: []string{"update"}},
			},
		},
		aggregated: regexp.MustCompile(`^aggregate-(antrea-policies|traceflows|antrea-clustergroups)-(edit|view)$`),
		pods: map[string]podPolicy{
			"DaemonSet kube-system/antrea-agent": {
				account: "antrea-agent", hostNetwork: true,
				privileged: []string{"antrea-agent"},
				commands:   []string{"install_cni", "antrea-agent", "start_ovs", "/bin/sh -c timeout 10 container_liveness_probe ovs"},
				capabilities: map[string][]string{
					"install-cni": {"SYS_MODULE"},
					"antrea-ovs":  {"SYS_NICE", "NET_ADMIN", "SYS_ADMIN", "IPC_LOCK"},
				},
				hostPaths: []string{
					"/etc/cni/net.d", "/opt/cni/bin", "/proc", "/var/run/netns", "/var/run/antrea",
					"/var/log/antrea", "/lib/modules", "/run/xtables.lock", "/var/lib/kubelet/pod-resources",
				},
			},
			"Deployment kube-system/antrea-controller": {
				account: "antrea-controller", hostNetwork: true, commands: []string{"antrea-controller"},
				hostPaths: []string{"/var/log/antrea"}, secrets: []string{"antrea-controller-tls"},
			},
		},
		services:      []string{"kube-system/antrea"},
		webhookGroups: []string{"crd.antrea.io", "policy.networking.k8s.io"},
	}
}
