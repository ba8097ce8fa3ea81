package cluster

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

// files are the cluster's CA and the files that it signed.
type files struct {
	dir string
	ca  pki.Authority
}

func (f files) path(name string) string { return filepath.Join(f.dir, name) }

// newFiles makes the CA and the control plane's files, for an API server at an address.
func newFiles(dir, address string) (f files, err error) {
	f.dir = dir
	if f.ca, err = (pki.Authority{}).New(pki.Spec{Name: "test cluster CA", CA: true}); err != nil {
		return f, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return f, err
	}
	return f, errors.Join(
		f.write("ca.crt", f.ca.PEM()), f.write("tokens.csv", []byte(adminToken+",admin,admin,system:masters\n")),
		f.issue("sa", pki.Spec{Name: "service accounts"}),
		f.issue("server", pki.Spec{
			Name: "kube-apiserver", Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, DNS: []string{
				"127.0.0.1", "10.96.0.1", address,
				"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			},
		}),
		f.issue("kubelet-client", identity("kube-apiserver-kubelet-client", "system:masters")),
	)
}

// identity returns the certificate of a client with a name and a group.
func identity(name, group string) pki.Spec {
	return pki.Spec{Name: name, Organization: []string{group}, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
}

// issue writes NAME.crt and NAME.key.
func (f files) issue(name string, spec pki.Spec) error {
	issued, err := f.ca.New(spec)
	if err != nil {
		return err
	}
	return errors.Join(f.write(name+".crt", issued.PEM()), f.write(name+".key", issued.KeyPEM()))
}

func (f files) write(name string, data []byte) error { return os.WriteFile(f.path(name), data, 0o600) }

// WriteNodeKubeconfig writes a kubeconfig with the permissions of a node's kubelet.
func (c *Cluster) WriteNodeKubeconfig(node, path string) error {
	if err := c.pki.issue("node-"+node, identity("system:node:"+node, "system:nodes")); err != nil {
		return fmt.Errorf("certificate of node %s: %w", node, err)
	}
	return c.WriteKubeconfig(path, &clientcmdapi.AuthInfo{
		ClientCertificate: c.pki.path("node-" + node + ".crt"), ClientKey: c.pki.path("node-" + node + ".key"),
	})
}

// CAFile returns the file with the certificate of the cluster's CA.
func (c *Cluster) CAFile() string { return c.pki.path("ca.crt") }

// WriteKubeconfig writes a kubeconfig with the permissions of a user.
func (c *Cluster) WriteKubeconfig(path string, user *clientcmdapi.AuthInfo) error {
	server := &clientcmdapi.Cluster{Server: c.url(), CertificateAuthorityData: c.pki.ca.PEM()}
	return writeKubeconfig(path, server, user, "")
}

func writeKubeconfig(path string, server *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo, namespace string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = server
	config.AuthInfos["user"] = user
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "user", Namespace: namespace}
	config.CurrentContext = "test"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
