package remote

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// HostOptions are what differs for one host. The zero value is what Options say.
type HostOptions struct {
	// CAFile are certificates trusted for this host, besides those of all.
	CAFile string
	// ClientCert and ClientKey are PEM files that this host, and no other, is shown,
	// where the user names it; not where another server points to it.
	ClientCert, ClientKey string
	// PlainHTTP speaks to it without TLS.
	PlainHTTP bool
	// Concurrency is how many blobs are read or written at a time.
	Concurrency int
	// ChunkSize is the largest body of a request that sends a part of a blob: for who
	// sends blobs.
	ChunkSize int64
}

// CheckHost demands a host as references write it.
func CheckHost(what, name string) error {
	ref, err := image.ParseReference(name + "/x")
	if err == nil && ref.Host() == name {
		return nil
	}
	hint := "write the host as references do, with the port: registry.site:5000"
	if _, host, ok := strings.Cut(name, "://"); ok {
		host, _, _ = strings.Cut(host, "/")
		hint = "leave out the scheme and the path: " + fault.Quote(host)
	}
	return &fault.Error{
		Reason: fault.InvalidInput, Op: what, Subject: fmt.Sprintf("%q", name),
		Hint: hint,
		Err:  errors.New("it is not a registry host"),
	}
}

// configure reads the settings of hosts.
func (c *Client) configure(pool *x509.CertPool) error {
	for _, h := range c.opts.PlainHTTP {
		if err := CheckHost("read flag --plain-http", h); err != nil {
			return err
		}
		c.plain[h] = true
	}
	for name, o := range c.opts.Hosts {
		if err := CheckHost("read the settings of", name); err != nil {
			return err
		}
		if o.PlainHTTP {
			c.plain[name] = true
		}
		if o.CAFile == "" && o.ClientCert == "" && o.ClientKey == "" {
			continue
		}
		t, err := c.hostTransports(pool, o)
		if err != nil {
			return err
		}
		c.named[name] = t
		if name == dockerHub {
			c.named[dockerHubAPI] = t
		}
	}
	return nil
}

// transports carry requests to one host: those that the user wants to go there, and
// those that another server sent there. Both trust the same authorities; only the
// first show a certificate, or a server could have this client act in its place.
type transports struct{ own, foreign *http.Transport }

// hostTransports are those of a host that needs its own.
func (c *Client) hostTransports(pool *x509.CertPool, o HostOptions) (t transports, err error) {
	pool = pool.Clone()
	if err := addFile(pool, o.CAFile); err != nil {
		return t, err
	}
	if o.ClientCert == "" && o.ClientKey == "" {
		o.ClientCert, o.ClientKey = c.opts.ClientCert, c.opts.ClientKey
	}
	certs, err := clientCertificate(o.ClientCert, o.ClientKey)
	if err != nil {
		return t, err
	}
	return transports{newTransport(c.opts, pool, certs), newForeign(c.opts, pool)}, nil
}

// clientCertificate reads a pair of files; none for none.
func clientCertificate(cert, key string) ([]tls.Certificate, error) {
	bad := func(subject, hint string, err error) ([]tls.Certificate, error) {
		return nil, &fault.Error{Reason: fault.InvalidInput, Op: "read client certificate", Subject: subject, Hint: hint, Err: err}
	}
	switch {
	case cert == "" && key == "":
		return nil, nil
	case cert == "":
		return bad(key, "name the certificate of that key with --client-cert", errors.New("there is a key and no certificate"))
	case key == "":
		return bad(cert, "name the private key of that certificate with --client-key", errors.New("there is a certificate and no key"))
	}
	certPEM, err := readFile(cert, maxCAFile)
	if err != nil {
		return nil, unreadable("client certificate", cert, err)
	}
	keyPEM, err := readFile(key, maxCAFile)
	if err != nil {
		return nil, unreadable("client certificate's key", key, err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return bad(cert+" and "+key, "give a certificate and its own private key, not encrypted, as PEM", err)
	}
	return []tls.Certificate{pair}, nil
}

// Settings returns those of a host: its own, or those of all.
func (c *Client) Settings(name string) HostOptions {
	o := c.opts.Hosts[name]
	if o.Concurrency <= 0 {
		o.Concurrency = c.opts.Concurrency
	}
	return o
}

// transport returns what carries a request to an address: the address of a host
// that the user named, or (foreign) one that a server named.
func (c *Client) transport(address string, foreign bool) *http.Transport {
	t, ok := c.named[address]
	if !ok {
		t = transports{c.own, c.foreign}
	}
	if foreign {
		return t.foreign
	}
	return t.own
}
