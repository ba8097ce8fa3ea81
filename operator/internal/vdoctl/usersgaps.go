package vdoctl

import (
	"errors"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
)

// What a plan cannot have, since it is not found: without a word an account would look
// ready, and the drivers would fail with it.

// noDatastore says that volumes have no place in a vCenter.
func (a *asked) noDatastore() error {
	if !a.features.Block || slices.ContainsFunc(a.access.Objects, func(x privileges.Object) bool { return x.Kind == privileges.Datastore }) {
		return nil
	}
	return &fault.Error{Reason: fault.Refused, Op: "find datastores for volumes in", Subject: a.found.Server,
		Err:  errors.New("none is shared by the hosts that the nodes run on"),
		Hint: "give these hosts a datastore in common, or correct spec.datacenters of VsphereCloudConfig " + fault.Quote(a.found.Name)}
}

// withoutMachine are the nodes that no vCenter has a VM of.
func withoutMachine(nodes []preflight.Node, list []asked) []string {
	var out []string
	for _, n := range nodes {
		is := func(m preflight.Machine) bool {
			return preflight.SameUUID(n.UUID, m.UUID) || n.Name == m.Name || strings.EqualFold(n.Name, m.HostName)
		}
		if !slices.ContainsFunc(list, func(a asked) bool { return slices.ContainsFunc(a.found.Machines, is) }) {
			out = append(out, n.Name)
		}
	}
	return out
}

// warn names the nodes that the account gets nothing for.
func (o *usersOptions) warn(nodes []preflight.Node, list []asked) {
	if names := withoutMachine(nodes, list); len(names) > 0 {
		o.warning(&fault.Error{Op: "find the VMs of nodes", Subject: shortList(names),
			Err:  errors.New("none with their UUID in the configured datacenters, so that no role is planned for them"),
			Hint: "see `vdoctl check --only node-vm`; after that run this again"})
	}
}

func (o *usersOptions) warning(err error) {
	l := &lines{w: o.err}
	l.printf("%s: %v", o.paint(yellow, "warning"), err)
	if hint := fault.HintOf(err); hint != "" {
		l.printf("hint: %s", hint)
	}
}
