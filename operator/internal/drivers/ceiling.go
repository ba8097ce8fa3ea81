package drivers

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Ceiling bounds the manifests of a driver. A bundle's signer can run its images on every node; the ceiling keeps a
// manifest within the driver's known needs. It follows upstream's manifests: a release that needs more needs a review
// and a line here.
type Ceiling struct {
	// Objects by "Kind namespace/name" or "Kind name", anchored.
	Objects []*regexp.Regexp
	// Accounts are the ServiceAccounts that pods and bindings may name.
	Accounts []string
	// Users that bindings may also name; ForeignRoles that they may bind.
	Users, ForeignRoles []string
	// Grants are sensitive permissions that are refused otherwise, by the name of the role: see [grants].
	Grants map[string]*regexp.Regexp
	// Aggregated matches roles that may add their rules to the built-in view, edit and admin.
	Aggregated *regexp.Regexp
	Pods       map[string]Pods // by "Kind namespace/name"
	// Services that webhooks, CRDs and APIServices may send requests to.
	Services []string
	// WebhookGroups are the API groups whose objects webhooks may see.
	WebhookGroups []string
}

// Pods bounds a workload's pods beyond a plain pod.
type Pods struct {
	Account      string
	HostNetwork  bool
	HostProcess  bool // Windows
	Privileged   []string
	Capabilities map[string][]string // by container
	HostPaths    []string            // exact
	Secrets      []string            // mounted
	// Commands that containers may run instead of their image's own, and probes may run: whole lines, or the first
	// word before flags.
	Commands []string
}

func patterns(exprs ...string) []*regexp.Regexp {
	out := make([]*regexp.Regexp, len(exprs))
	for i, e := range exprs {
		out[i] = regexp.MustCompile("^(?:" + e + ")$")
	}
	return out
}

// ceilings are the ceilings of the drivers. They are never changed. Most runs of vdoctl need none.
var ceilings = sync.OnceValue(func() map[matrix.Driver]*Ceiling {
	return map[matrix.Driver]*Ceiling{
		matrix.CPI: cpi(), matrix.CSI: csi(), matrix.SnapshotController: snapshotController(), matrix.CNI: antrea(),
	}
})

// CeilingOf returns the ceiling of a driver, or nil for an unknown driver.
func CeilingOf(d matrix.Driver) *Ceiling { return ceilings()[d] }

func cpi() *Ceiling {
	return &Ceiling{
		Objects: patterns(
			`ServiceAccount kube-system/cloud-controller-manager`,
			`Secret kube-system/vsphere-cloud-secret`,
			`ConfigMap kube-system/vsphere-cloud-config`,
			`RoleBinding kube-system/servicecatalog\.k8s\.io:apiserver-authentication-reader`,
			`ClusterRole(Binding)? system:cloud-controller-manager`,
			`DaemonSet kube-system/vsphere-cloud-controller-manager`,
		),
		Accounts:     []string{"kube-system/cloud-controller-manager"},
		Users:        []string{"cloud-controller-manager"},
		ForeignRoles: []string{"Role kube-system/extension-apiserver-authentication-reader"},
		Grants: map[string]*regexp.Regexp{"system:cloud-controller-manager": grants(
			`/nodes .*`,
			`/secrets (get|list|watch) .*`,
			`/serviceaccounts (create|update) .*`,
			`/persistentvolumes update .*`,
		)},
		Pods: map[string]Pods{
			"DaemonSet kube-system/vsphere-cloud-controller-manager": {
				Account: "cloud-controller-manager", HostNetwork: true,
			},
		},
	}
}

func csi() *Ceiling {
	return &Ceiling{
		Objects: patterns(
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
		Accounts: []string{
			"vmware-system-csi/vsphere-csi-controller", "vmware-system-csi/vsphere-csi-node",
			"vmware-system-csi/vsphere-csi-webhook", "kube-system/snapshot-webhook",
		},
		Grants: map[string]*regexp.Regexp{"vsphere-csi-controller-role": grants(
			`/configmaps create .*`,
			`/persistentvolumes (create|update|patch|delete) .*`,
			`apiextensions[.]k8s[.]io/customresourcedefinitions (create|update) .*`,
		)},
		Pods: map[string]Pods{
			"Deployment vmware-system-csi/vsphere-csi-controller": {
				Account: "vsphere-csi-controller", Secrets: []string{ConfigSecret},
			},
			"Deployment vmware-system-csi/vsphere-csi-webhook": {
				Account: "vsphere-csi-webhook", Secrets: []string{WebhookSecret},
			},
			"Deployment kube-system/snapshot-validation-deployment": {
				Account: "snapshot-webhook", Secrets: []string{"snapshot-webhook-certs"},
			},
			"DaemonSet vmware-system-csi/vsphere-csi-node": {
				Account: "vsphere-csi-node", HostNetwork: true,
				Privileged:   []string{"vsphere-csi-node"},
				Capabilities: map[string][]string{"vsphere-csi-node": {"SYS_ADMIN"}},
				Commands:     []string{"/csi-node-driver-registrar"},
				HostPaths: []string{
					"/var/lib/kubelet", "/var/lib/kubelet/plugins_registry",
					"/var/lib/kubelet/plugins/csi.vsphere.vmware.com",
					"/dev", "/sys/block", "/sys/devices",
				},
			},
			"DaemonSet vmware-system-csi/vsphere-csi-node-windows": {
				Account: "vsphere-csi-node", HostNetwork: true, HostProcess: true,
				Commands: []string{"csi.exe", "csi-node-driver-registrar.exe", "/csi-node-driver-registrar.exe", "livenessprobe.exe"},
				HostPaths: []string{
					`\var\lib\kubelet`, `C:\var\lib\kubelet`, `C:\var\lib\kubelet\`,
					`C:\var\lib\kubelet\plugins_registry\`,
					`C:\var\lib\kubelet\plugins\csi.vsphere.vmware.com\`,
					`\\.\pipe\csi-proxy-disk-v1`, `\\.\pipe\csi-proxy-volume-v1`,
					`\\.\pipe\csi-proxy-filesystem-v1`, `\\.\pipe\csi-proxy-system-v1alpha1`,
				},
			},
		},
		Services: []string{
			"vmware-system-csi/vsphere-webhook-svc", "kube-system/snapshot-validation-service",
		},
		WebhookGroups: []string{"", "storage.k8s.io", "snapshot.storage.k8s.io"},
	}
}

func snapshotController() *Ceiling {
	return &Ceiling{
		Objects: patterns(
			`CustomResourceDefinition volumesnapshot(classe|content)?s\.snapshot\.storage\.k8s\.io`,
			`CustomResourceDefinition volumegroupsnapshot(classe|content)?s\.groupsnapshot\.storage\.k8s\.io`,
			`ServiceAccount kube-system/snapshot-controller`,
			`ClusterRole snapshot-controller-runner`,
			`ClusterRoleBinding snapshot-controller-role`,
			`Role kube-system/snapshot-controller-leaderelection`,
			`RoleBinding kube-system/snapshot-controller-leaderelection`,
			`Deployment kube-system/snapshot-controller`,
		),
		Accounts: []string{"kube-system/snapshot-controller"},
		Pods: map[string]Pods{
			"Deployment kube-system/snapshot-controller": {Account: "snapshot-controller"},
		},
	}
}

func antrea() *Ceiling {
	return &Ceiling{
		Objects: patterns(
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
		Accounts: []string{"kube-system/antrea-agent", "kube-system/antctl", "kube-system/antrea-controller"},
		Grants: map[string]*regexp.Regexp{
			"antctl": grants(`url://debug/pprof/[*] get .*`),
			"antrea-agent": grants(
				`/secrets (get|list|watch) antrea-[a-z-]+`,
				`certificates[.]k8s[.]io/certificatesigningrequests create .*`,
			),
			"antrea-controller": grants(
				`/nodes patch .*`,
				`/(secrets|configmaps) create .*`,
				`/secrets (get|list|watch|update) antrea-[a-z-]+`,
				`/configmaps update antrea-[a-z-]+`,
				`admissionregistration[.]k8s[.]io/(mutating|validating)webhookconfigurations update .*`,
				`apiextensions[.]k8s[.]io/customresourcedefinitions update .*`,
				`certificates[.]k8s[.]io/certificatesigningrequests/(approval|status) update .*`,
				`certificates[.]k8s[.]io/signers (approve|sign) antrea[.]io/antrea-agent-ipsec-tunnel`,
				`apiregistration[.]k8s[.]io/apiservices update .*`,
			),
		},
		Aggregated: regexp.MustCompile(`^aggregate-(antrea-policies|traceflows|antrea-clustergroups)-(edit|view)$`),
		Pods: map[string]Pods{
			"DaemonSet kube-system/antrea-agent": {
				Account: "antrea-agent", HostNetwork: true,
				Privileged: []string{"antrea-agent"},
				Commands:   []string{"install_cni", "antrea-agent", "start_ovs", "/bin/sh -c timeout 10 container_liveness_probe ovs"},
				Capabilities: map[string][]string{
					"install-cni": {"SYS_MODULE"},
					"antrea-ovs":  {"SYS_NICE", "NET_ADMIN", "SYS_ADMIN", "IPC_LOCK"},
				},
				HostPaths: []string{
					"/etc/cni/net.d", "/opt/cni/bin", "/proc", "/var/run/netns", "/var/run/antrea",
					"/var/log/antrea", "/lib/modules", "/run/xtables.lock", "/var/lib/kubelet/pod-resources",
				},
			},
			"Deployment kube-system/antrea-controller": {
				Account: "antrea-controller", HostNetwork: true, Commands: []string{"antrea-controller"},
				HostPaths: []string{"/var/log/antrea"}, Secrets: []string{"antrea-controller-tls"},
			},
		},
		Services:      []string{"kube-system/antrea"},
		WebhookGroups: []string{"crd.antrea.io", "policy.networking.k8s.io"},
	}
}

// Sensitive matches permissions that give further permissions, other users' secrets, or the nodes, as "GROUP/RESOURCE
// VERB". SensitiveWrites matches more, unless the verb only reads. The admission policy for the operator's account
// has the same expressions, and those of [Ceiling.Grants]: deploy/rbac-policy.yaml.
var (
	Sensitive = regexp.MustCompile(`[*]|^/secrets[/ ]` +
		`|^/(pods|nodes|services)/(exec|attach|portforward|proxy|ephemeralcontainers) ` +
		`| (escalate|bind|impersonate.*|approve|sign|use)$`)
	SensitiveWrites = regexp.MustCompile(`^/(pods|nodes) ` +
		`|^/(serviceaccounts|configmaps|namespaces|persistentvolumes|replicationcontrollers)[/ ]` +
		`|^(apps|batch|extensions|policy)/` +
		`|^(rbac[.]authorization|admissionregistration|apiextensions|apiregistration|certificates)[.]`)
)

// grants matches "GROUP/RESOURCE VERB NAME" with an empty name for all names.
func grants(exprs ...string) *regexp.Regexp {
	return regexp.MustCompile("^(" + strings.Join(exprs, "|") + ")$")
}

// Excess returns the sensitive permissions of a rule that a role may not have, such as "get secrets" and "use x in
// GROUP".
func (p *Ceiling) Excess(role string, rule rbacv1.PolicyRule) (all []string) {
	may := p.Grants[role]
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	check := func(group, resource, in string) {
		for _, verb := range rule.Verbs {
			right := group + "/" + resource + " " + verb
			reads := verb == "get" || verb == "list" || verb == "watch"
			if !Sensitive.MatchString(right) && (reads || !SensitiveWrites.MatchString(right)) {
				continue
			}
			refused := func(name string) bool { return !may.MatchString(right + " " + name) }
			if may == nil || slices.ContainsFunc(names, refused) {
				all = append(all, verb+" "+resource+in)
			}
		}
	}
	for _, url := range rule.NonResourceURLs {
		check("url:", url, "")
	}
	for _, group := range rule.APIGroups {
		in := ""
		if group != "" {
			in = " in " + group
		}
		for _, resource := range rule.Resources {
			check(group, resource, in)
		}
	}
	return all
}
