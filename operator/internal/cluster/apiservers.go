package cluster

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
)

const (
	// serverName is a name in the certificate of every API server of a cluster.
	serverName = "kubernetes.default.svc"
	// askTimeout bounds the request to one API server; the requests run in parallel.
	askTimeout = 2 * time.Second
	maxServers = 32
)

// APIServers returns each API server with its version or an error, since they are upgraded one by one. Their
// addresses are the endpoints of Service default/kubernetes; if unreadable, an entry without an address has the
// error. With fewer than two endpoints it returns only the answering one.
func (c *Cluster) APIServers(ctx context.Context) ([]assess.APIServer, error) {
	info, err := c.Versions.ServerVersion()
	if err != nil {
		return nil, classify("read", "the version of the API server", err)
	}
	c.version.Store(info.GitVersion)
	all := []assess.APIServer{{Version: info.GitVersion}}
	addresses, err := c.endpoints(ctx)
	if err != nil {
		return append(all, assess.APIServer{Err: err}), nil //nolint:nilerr // the entry reports it
	}
	if len(addresses) < 2 {
		return all, nil
	}
	answers, _, _ := sideBySide(ctx, addresses, c.askServer) //nolint:errcheck // each has its own error
	return append(all, answers...), nil
}

// endpoints returns HOST:PORT of every API server, sorted. The API servers write them into one EndpointSlice with
// the name of their Service, so the operator needs to read no other one.
func (c *Cluster) endpoints(ctx context.Context) ([]string, error) {
	var slice discoveryv1.EndpointSlice
	err := c.Reader.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, &slice)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, classify("read", "the addresses of the API servers", err)
	}
	all := addressesOf(&slice)
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(len(all), maxServers)], nil
}

func addressesOf(s *discoveryv1.EndpointSlice) []string {
	var all []string
	for _, p := range s.Ports {
		if p.Port == nil {
			continue
		}
		for _, e := range s.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			for _, a := range e.Addresses {
				all = append(all, net.JoinHostPort(a, strconv.Itoa(int(*p.Port))))
			}
		}
	}
	return all
}

func (c *Cluster) askServer(ctx context.Context, address string) (assess.APIServer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	v, err := c.Ask(ctx, address)
	return assess.APIServer{Address: address, Version: v, Err: err}, nil
}

// Asking returns a function that asks the API server at HOST:PORT for its version. It expects a certificate for the
// name that all API servers of a cluster share. If cfg skips verification, it sends no credentials.
func Asking(cfg *rest.Config) func(ctx context.Context, address string) (string, error) {
	return func(ctx context.Context, address string) (string, error) {
		one := rest.CopyConfig(cfg)
		if one.Insecure {
			one = rest.AnonymousClientConfig(cfg)
		}
		one.Host, one.ServerName = "https://"+address, serverName
		d, err := discovery.NewDiscoveryClientForConfig(one)
		if err != nil {
			return "", err
		}
		info, err := d.ServerVersionWithContext(ctx)
		if err != nil {
			return "", rootCause(err)
		}
		return info.GitVersion, nil
	}
}

// rootCause drops the parts that differ between attempts: the URL, and the client's port.
func rootCause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}
