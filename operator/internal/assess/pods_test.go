package assess_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
)

// homeless is a pod that the scheduler found no node for, some time ago; node is the only
// one that it may run on, as a DaemonSet's.
func homeless(app, node, says string, ago time.Duration) *corev1.Pod {
	p := pod(app, "driver", corev1.ContainerState{}, "")
	p.Spec.NodeName = ""
	p.Status.ContainerStatuses = nil
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: says, LastTransitionTime: metav1.NewTime(now.Add(-ago)),
	}}
	if node != "" {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
			}}},
		}}}
	}
	return p
}

// What the scheduler of Kubernetes says (1.33), and what is said of it.
func TestPodsWithoutAPlaceAreNamedWithTheNodeAndTheRemedy(t *testing.T) {
	const others = ", 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."
	for name, c := range map[string]struct {
		app, node, says, message, remedy string
	}{
		"no room for another pod": {"vsphere-csi-node", "w2", "0/3 nodes are available: 1 Too many pods" + others,
			"its pod has no place on node w2: Too many pods", "maxPods"},
		"no processor": {"vsphere-csi-node", "w2", "0/3 nodes are available: 1 Insufficient cpu" + others,
			"its pod has no place on node w2: Insufficient cpu", "make room"},
		"a taint": {"vsphere-csi-controller", "", "0/3 nodes are available: 1 node(s) had untolerated taint {dedicated: db}, 2 node(s) didn't match Pod's node affinity/selector" + others,
			"its pods have no place: node(s) had untolerated taint {dedicated: db}", "tolerate"},
		"no node with the label": {"vsphere-csi-controller", "", "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. preemption: none",
			"its pods have no place: node(s) didn't match Pod's node affinity/selector", "node-role.kubernetes.io/control-plane"},
		"a port": {"vsphere-csi-node", "w1", "0/3 nodes are available: 1 node(s) didn't have free ports for the requested pod ports" + others,
			"its pod has no place on node w1: node(s) didn't have free ports for the requested pod ports", "listens"},
		"something new": {"vsphere-csi-node", "w1", "0/3 nodes are available: 1 moon is not full. preemption: none",
			"its pod has no place on node w1: 0/3 nodes are available: 1 moon is not full.", "describe pod"},
	} {
		for _, finding := range []bool{false, true} {
			in := healthy()
			in.DaemonSets[1] = daemonSet("vmware-system-csi", "vsphere-csi-node", "csi", "3.5.1", 3, 2, 2)
			in.Deployments[0] = deployment(1, 0, 0)
			ago := assess.Grace - time.Second
			if finding {
				ago = assess.Grace
			}
			in.Pods = []*corev1.Pod{homeless(c.app, c.node, c.says, ago)}
			var found []assess.Finding
			for _, f := range assess.Assess(in).Drivers[matrix.CSI].Findings {
				if f.Message == c.message {
					found = append(found, f)
				}
			}
			require.Len(t, found, 1, name)
			require.Equal(t, !finding, found[0].Waiting, name)
			require.Equal(t, fault.Incomplete, found[0].Reason)
			require.Contains(t, found[0].Remedy, c.remedy, name)
		}
	}
}

// What the drivers write before they end, and what is said of it. Lines as the drivers'
// loggers write them: klog of the cloud provider, JSON of the storage driver.
func TestWhyDriversEndIsToldFromTheirLastWords(t *testing.T) {
	const failed = `{"level":"error","caller":"x/y.go:1","msg":"failed to initialize the driver: `
	for line, want := range map[string]struct {
		reason fault.Reason
		remedy string
	}{
		failed + `ServerFaultCode: Cannot complete login due to an incorrect user name or password."}`:                          {fault.Unauthorized, "user and password"},
		failed + `Post https://vc.site/sdk: tls: failed to verify certificate: x509: certificate signed by unknown authority"}`: {fault.CertificateInvalid, "set ca or thumbprint"},
		failed + `x509: certificate is not valid for any names, but wanted to match vc"}`:                                       {fault.CertificateInvalid, "a name that is in"},
		failed + `x509: cannot validate certificate for 192.0.2.9 because it does not contain any IP SANs"}`:                    {fault.CertificateInvalid, "a name that is in"},
		failed + `thumbprint does not match"}`:                                                                                     {fault.CertificateInvalid, "thumbprint of the new one"},
		failed + `failed to connect to vCenter using CA file"}`:                                                                    {fault.CertificateInvalid, "as PEM"},
		failed + `Post https://vc.site/sdk: dial tcp 192.0.2.9:443: i/o timeout"}`:                                                 {fault.Unreachable, "TCP 443"},
		failed + `lookup vc.site: no such host"}`:                                                                                  {fault.Unreachable, "DNS"},
		failed + `Failed to find the datacenter: east"}`:                                                                           {fault.NotFound, "folder/name"},
		`E0822 10:00:00.000000       1 connectionmanager.go:1] datacenter 'east' not found`:                                        {fault.NotFound, "folder/name"},
		failed + `datacenter 'east': ServerFaultCode: NoPermission"}`:                                                              {fault.Forbidden, "privilege"},
		failed + `found conflicting topology labels on certain node(s)"}`:                                                          {fault.Conflict, "beta and GA"},
		failed + `Permission to perform this operation was denied."}`:                                                              {fault.Forbidden, "privilege"},
		failed + `checkAPI failed for vcenter API version: 6.7"}`:                                                                  {fault.Incompatible, "too old"},
		failed + `vSAN file service is not supported in one or more vCenter(s)"}`:                                                  {fault.Incompatible, "too old"},
		`E0822 10:00:00.000000       1 reflector.go:1] leases.coordination.k8s.io is forbidden: User "x" cannot list resource`:     {fault.Forbidden, "ClusterRoles"},
		failed + `could not find the requested resource (get volumesnapshotcontents.snapshot.storage.k8s.io)"}`:                    {fault.Incomplete, "snapshot kinds"},
		failed + `timed out while waiting for topology labels to be updated in \"w1\" CSINodeTopology instance."}`:                 {fault.Incomplete, "csinodetopologies"},
		failed + `failed to retrieve nodeVM \"x\" using the node manager. Error: virtual machine wasn't found"}`:                   {fault.NotFound, "spec.datacenters"},
		failed + `Cluster ID is present in vSphere Config Secret as well as in vsphere-csi-cluster-id ConfigMap. Please remove."}`: {fault.Conflict, "clusterID"},
	} {
		in := healthy()
		in.Pods = []*corev1.Pod{pod("vsphere-csi-node", "vsphere-csi-node", waiting("CrashLoopBackOff", ""), line+"\n")}
		err := assess.Assess(in).Drivers[matrix.CSI].Err()
		require.Error(t, err, line)
		require.Equal(t, want.reason, fault.ReasonOf(err), line)
		require.Contains(t, fault.HintOf(err), want.remedy, line)
	}
}
