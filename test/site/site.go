// Package site is what lies behind the gap, on one machine: a private mirror, a
// vCenter, and a Kubernetes cluster whose nodes are virtual machines of that vCenter.
//
// What is real: the registry (the reference implementation, over TLS), the control
// plane, the vCenter's API (govmomi's simulator). What stands in: the kubelets (KWOK
// answers for them, unless nodes of test/realnode join), and the running drivers, whose part [Drivers] plays.
package site

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/world"
)

// Datacenter is where the cluster's nodes are, as an inventory path.
const Datacenter = "/site/prod/east"

// Site is what lies behind the gap.
type Site struct {
	// Dir holds the site's files: mirror-ca.crt, vcenter-ca.crt, docker/config.json
	// (the login of the mirror), and the cluster's own.
	Dir     string
	Mirror  *registry.Registry // see [world.StartMirror]; nil where it runs elsewhere
	VCenter *vcenter.VCenter
	Cluster *cluster.Cluster
	Drivers *Drivers
	// Machines are the nodes, or what nodes may join as where Options.Kubelets is set.
	Machines []cluster.Node
}

// Options say what the site has.
type Options struct {
	Dir string
	// NoMirror is set where the mirror runs elsewhere.
	NoMirror bool
	// Kubernetes version to report; default toolchain.FirstKubernetes.
	Kubernetes string
	// ControlPlanes and Workers are numbers of nodes; default 1 and 2.
	ControlPlanes, Workers int
	// Kubelets: there are no nodes yet; real ones join by themselves.
	Kubelets bool
	// Address that the mirror and the API server listen on; default 127.0.0.1.
	Address string
	// Progress is told when programs have to be built.
	Progress io.Writer
}

// New starts a site.
func New(ctx context.Context, o Options) (_ *Site, err error) {
	if o.ControlPlanes == 0 {
		o.ControlPlanes = 1
	}
	if o.Workers == 0 {
		o.Workers = 2
	}
	if o.Address == "" {
		o.Address = "127.0.0.1"
	}
	s := &Site{Dir: o.Dir}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if !o.NoMirror {
		if s.Mirror, err = world.StartMirrorAt(s.Dir, o.Address+":0"); err != nil {
			return nil, err
		}
	}
	// One machine more than nodes, for one that joins.
	if s.VCenter, err = vcenter.Run(vcenter.Options{Machines: o.ControlPlanes + o.Workers + 1}); err != nil {
		return nil, err
	}
	if err := s.writeFiles(); err != nil {
		return nil, err
	}
	if s.Machines, err = s.nodes(ctx, o); err != nil {
		return nil, err
	}
	options := cluster.Options{
		Version: o.Kubernetes, Dir: s.path("cluster"), Progress: o.Progress, Kubelets: o.Kubelets, Address: o.Address,
	}
	if !o.Kubelets {
		options.Nodes = s.Machines
	}
	if s.Cluster, err = cluster.Start(ctx, options); err != nil {
		return nil, err
	}
	s.Drivers, err = StartDrivers(s.Cluster.Config())
	return s, err
}

// Close ends the site.
func (s *Site) Close() {
	if s.Drivers != nil {
		s.Drivers.Stop()
	}
	var end errgroup.Group
	if s.Cluster != nil {
		end.Go(func() error { s.Cluster.Stop(); return nil })
	}
	if s.VCenter != nil {
		end.Go(func() error { s.VCenter.Close(); return nil })
	}
	if s.Mirror != nil {
		end.Go(s.Mirror.Close)
	}
	_ = end.Wait()
}

func (s *Site) path(name string) string { return filepath.Join(s.Dir, name) }

func (s *Site) writeFiles() error {
	if err := os.MkdirAll(s.path("cluster"), 0o700); err != nil {
		return err
	}
	return os.WriteFile(s.path("vcenter-ca.crt"), s.VCenter.CA, 0o600)
}

// nodes makes each node one of the vCenter's virtual machines, which is set up as a node's
// has to be.
func (s *Site) nodes(ctx context.Context, o Options) ([]cluster.Node, error) {
	vms, err := s.VCenter.VMs(ctx, Datacenter)
	if err != nil {
		return nil, err
	}
	if len(vms) < o.ControlPlanes+o.Workers {
		return nil, fmt.Errorf("site: %s has %d VMs, fewer than nodes", Datacenter, len(vms))
	}
	var nodes []cluster.Node
	for i := range o.ControlPlanes + o.Workers {
		name := fmt.Sprintf("worker-%d", i-o.ControlPlanes+1)
		if i < o.ControlPlanes {
			name = fmt.Sprintf("control-plane-%d", i+1)
		}
		if err := s.VCenter.Ready(vms[i].Path, name); err != nil {
			return nil, err
		}
		nodes = append(nodes, cluster.Node{Name: name, ControlPlane: i < o.ControlPlanes, SystemUUID: vms[i].UUID})
	}
	return nodes, nil
}
