package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// pki is the cluster's certificate authority and the files signed by it.
type pki struct {
	dir   string
	ca    *x509.Certificate
	caKey *ecdsa.PrivateKey
	caPEM []byte
}

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

// newPKI makes the authority and what the control plane needs of it, for an API server
// at an address.
func newPKI(dir, address string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &pki{dir: dir}
	if err := p.found(); err != nil {
		return nil, err
	}
	saKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	saPEM, err := keyPEM(saKey)
	if err != nil {
		return nil, err
	}
	return p, errors.Join(
		p.write("ca.crt", p.caPEM), p.write("sa.key", saPEM),
		p.write("tokens.csv", []byte(adminToken+",admin,admin,system:masters\n")),
		p.issue("server", &x509.Certificate{
			Subject: pkix.Name{CommonName: "kube-apiserver"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1), net.ParseIP(address)},
			DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		}),
		p.issue("kubelet-client", &x509.Certificate{
			Subject:     pkix.Name{CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}),
	)
}

// found makes the authority.
func (p *pki) found() (err error) {
	if p.caKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	p.ca = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test cluster CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, p.ca, p.ca, p.caKey.Public(), p.caKey)
	if err != nil {
		return err
	}
	p.caPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return nil
}

// issue completes a certificate, signs it, and writes NAME.crt and NAME.key.
func (p *pki) issue(name string, leaf *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	leaf.SerialNumber = big.NewInt(time.Now().UnixNano())
	leaf.NotBefore, leaf.NotAfter, leaf.KeyUsage = p.ca.NotBefore, p.ca.NotAfter, x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, leaf, p.ca, key.Public(), p.caKey)
	if err != nil {
		return err
	}
	private, err := keyPEM(key)
	if err != nil {
		return err
	}
	return errors.Join(
		p.write(name+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		p.write(name+".key", private),
	)
}

func (p *pki) write(name string, data []byte) error { return os.WriteFile(p.path(name), data, 0o600) }

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// client returns an HTTP client for probes. Controllers serve with certificates
// that they sign themselves, so without a token nothing is checked.
func (p *pki) client(token string) *http.Client {
	if token == "" {
		return &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a health probe on loopback, see above
		}}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.caPEM)
	return &http.Client{Transport: bearer{token, &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
	}}}
}

type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(req)
}

func (c *Cluster) writeKubeconfig() error {
	return c.kubeconfig(c.Kubeconfig(), &clientcmdapi.AuthInfo{Token: adminToken})
}

// WriteNodeKubeconfig writes a kubeconfig with the rights of a node's kubelet.
func (c *Cluster) WriteNodeKubeconfig(node, path string) error {
	err := c.pki.issue("node-"+node, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return fmt.Errorf("certificate of node %s: %w", node, err)
	}
	return c.kubeconfig(path, &clientcmdapi.AuthInfo{
		ClientCertificate: c.pki.path("node-" + node + ".crt"), ClientKey: c.pki.path("node-" + node + ".key"),
	})
}

// CAFile returns the file with the certificate of the cluster's authority.
func (c *Cluster) CAFile() string { return c.pki.path("ca.crt") }

func (c *Cluster) kubeconfig(path string, user *clientcmdapi.AuthInfo) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: c.url(), CertificateAuthorityData: c.pki.caPEM}
	config.AuthInfos["user"] = user
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "user"}
	config.CurrentContext = "test"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
