package render

import (
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// renderSnapshot places the snapshot CRDs and controller. The controller runs on the control plane, with the request
// rate of CSI's own installer. If another one runs, it renders nothing: both would answer each VolumeSnapshot.
func (r *renderer) renderSnapshot(s *source) error {
	switch {
	case r.openShift():
		r.note("the snapshot-controller is left to OpenShift, which has its own")
		return nil
	case r.in.Cluster.ForeignSnapshotController:
		r.note("the snapshot-controller is left out: another one runs in the cluster")
		return nil
	}
	if err := s.requires("Deployment snapshot-controller"); err != nil {
		return err
	}
	for _, o := range s.objects {
		if o.GetKind() == "Deployment" {
			toControlPlane(podSpec(o))
			addArgs(container(o, "snapshot-controller"), "--kube-api-qps=100", "--kube-api-burst=100")
		}
		r.place(s, o)
	}
	return nil
}

// toControlPlane lets pods run on control-plane nodes only, unless a patch chose others.
func toControlPlane(spec map[string]any) {
	var terms, tolerations []any
	for _, key := range drivers.ControlPlaneLabels {
		terms = append(terms, map[string]any{"matchExpressions": []any{map[string]any{"key": key, "operator": "Exists"}}})
		tolerations = append(tolerations, map[string]any{"key": key, "operator": "Exists", "effect": "NoSchedule"})
	}
	spec["tolerations"] = append(list(spec["tolerations"]), tolerations...)
	affinity := child(child(child(spec, "affinity"), "nodeAffinity"), "requiredDuringSchedulingIgnoredDuringExecution")
	if len(list(affinity["nodeSelectorTerms"])) == 0 {
		affinity["nodeSelectorTerms"] = terms
	}
}
