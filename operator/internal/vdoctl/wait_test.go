package vdoctl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/topology"
)

// A tag on a VM or a resource pool says nothing of a zone; one on what the zone is in does.
func TestTagsOfVMsHoldNoZone(t *testing.T) {
	root, site := preflight.Ref{Type: "Folder", Value: "root"}, preflight.Ref{Type: "Datacenter", Value: "site"}
	pool, vm := preflight.Ref{Type: "ResourcePool", Value: "p"}, preflight.Ref{Type: "VirtualMachine", Value: "vm"}
	zone := preflight.Category{Name: "k8s-zone", Tag: "a"}
	u := &tagUse{cluster: preflight.Cluster{Nodes: []preflight.Node{
		{Name: "one", Zones: map[string]string{"topology.csi.vmware.com/k8s-zone": "a"}}}}}
	for on, refused := range map[preflight.Ref]bool{root: true, site: true, pool: false, vm: false} {
		v := preflight.VCenter{Contents: preflight.Contents{
			Objects: map[preflight.Ref]preflight.Object{
				root: {}, site: {Name: "site", Parent: root}, pool: {Name: "p", Parent: site}},
			Tagged: map[preflight.Ref][]preflight.Category{on: {zone}}}}
		err := u.refuse(v, []topology.Step{{Do: topology.Attach, Category: "k8s-zone", Tag: "b", Path: "/site"}})
		require.Equal(t, refused, err != nil, "%v: %v", on, err)
	}
}
