// Package site is the site behind the gap, on one machine. It has a private mirror, a vCenter, and a Kubernetes
// cluster whose nodes are virtual machines of that vCenter.
//
// The registry (the reference implementation, over TLS), the control plane and the vCenter's API (govmomi's
// simulator) are real. KWOK simulates the kubelets, unless nodes of test/realnode join, and [Drivers] the running
// drivers.
package site

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/world"
)

// Datacenter is the inventory path of the cluster's datacenter.
const Datacenter = "/site/prod/east"

// Site is a running site.
type Site struct {
	// Dir holds the site's files: mirror-ca.crt, vcenter-ca.crt, docker/config.json (the pull secret of the mirror),
	// and the cluster's own.
	Dir     string
	Mirror  *registry.Registry // see [world.StartMirror]; nil if it runs elsewhere
	VCenter *vcenter.VCenter
	Cluster *cluster.Cluster
	Drivers *Drivers
	// Machines are the nodes, or with Options.Kubelets those that nodes may join as.
	Machines []cluster.Node
}

// Options of a site.
type Options struct {
	Dir string
	// NoMirror is set if the mirror runs elsewhere.
	NoMirror bool
	// Kubelets starts without nodes; real ones join by themselves.
	Kubelets bool
	// Address that the mirror and the API server listen on; default 127.0.0.1.
	Address string
	// Progress receives messages about programs that are built.
	Progress io.Writer
}

// New starts a site.
func New(ctx context.Context, o Options) (_ *Site, err error) {
	o.Address = cmp.Or(o.Address, "127.0.0.1")
	s := &Site{Dir: o.Dir}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if !o.NoMirror {
		if s.Mirror, err = world.StartMirror(s.Dir, o.Address+":0"); err != nil {
			return nil, err
		}
	}
	// One machine more than nodes, for a node that joins later.
	if s.VCenter, err = vcenter.Run(vcenter.Options{Machines: len(names) + 1}); err != nil {
		return nil, err
	}
	if err := s.writeFiles(); err != nil {
		return nil, err
	}
	if s.Machines, err = s.nodes(ctx); err != nil {
		return nil, err
	}
	options := cluster.Options{
		Dir: s.path("cluster"), Progress: o.Progress, Kubelets: o.Kubelets, Address: o.Address,
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

// names of the nodes; the first is the control plane.
var names = []string{"control-plane-1", "worker-1", "worker-2"}

// nodes makes each node one of the vCenter's VMs, and configures the VM as drivers require.
func (s *Site) nodes(ctx context.Context) ([]cluster.Node, error) {
	vms, err := s.VCenter.VMs(ctx, Datacenter)
	if err != nil {
		return nil, err
	}
	var nodes []cluster.Node
	for i, name := range names {
		if err := s.VCenter.Ready(vms[i].Path, name); err != nil {
			return nil, err
		}
		nodes = append(nodes, cluster.Node{Name: name, ControlPlane: i == 0, SystemUUID: vms[i].UUID})
	}
	return nodes, nil
}

// ResourceOptions are the names in Resources.
type ResourceOptions struct {
	Namespace string
	Reference string // of the bundle in the mirror; "" omits the DriverBundle
}

// Resources returns, as YAML, the resources with which a site's administrator configures the operator, named site.
// They are the vCenter's account and CA, a VsphereCloudConfig, a DriverBundle and a VDOConfig.
func (s *Site) Resources(o ResourceOptions) string {
	documents := []string{
		fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: vcenter-account, namespace: %s}
type: kubernetes.io/basic-auth
stringData:
  username: %q
  password: %q
`, o.Namespace, vcenter.Admin.Username, vcenter.Admin.Password),
		fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: vcenter-ca, namespace: %s}
data:
  ca.crt: |
    %s
`, o.Namespace, strings.ReplaceAll(strings.TrimSpace(string(s.VCenter.CA)), "\n", "\n    ")),
		fmt.Sprintf(`apiVersion: vdo.vmware.com/v1alpha1
kind: VsphereCloudConfig
metadata: {name: site, namespace: %s}
spec:
  vcIp: %s
  port: %d
  credentials: vcenter-account
  ca: {configMap: vcenter-ca}
  datacenters: [%q]
`, o.Namespace, s.VCenter.Host, s.VCenter.Port, strings.TrimPrefix(Datacenter, "/")),
	}
	if o.Reference != "" {
		documents = append(documents, fmt.Sprintf(`apiVersion: vdo.vmware.com/v1alpha1
kind: DriverBundle
metadata: {name: site, namespace: %s}
spec:
  reference: %s
`, o.Namespace, o.Reference))
	}
	documents = append(documents, fmt.Sprintf(`apiVersion: vdo.vmware.com/v1alpha1
kind: VDOConfig
metadata: {name: site, namespace: %s}
spec:
  cloudProvider:
    vsphereCloudConfigs: [site]
  storageProvider:
    vsphereCloudConfig: site
    clusterDistribution: demo
`, o.Namespace))
	return strings.Join(documents, "---\n")
}

// WriteKubeconfigOf writes a kubeconfig with the permissions of a service account.
func (s *Site) WriteKubeconfigOf(ctx context.Context, namespace, account, path string) error {
	client, err := kubernetes.NewForConfig(s.Cluster.Config())
	if err != nil {
		return err
	}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](30 * 24 * 60 * 60)},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return s.Cluster.WriteKubeconfig(path, &clientcmdapi.AuthInfo{Token: token.Status.Token})
}
