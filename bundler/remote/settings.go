package remote

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/strictyaml"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
)

// HostOptions are the settings of one host that differ from Options.
type HostOptions struct {
	// CAFile is a PEM file of further certificates trusted for this host.
	CAFile string `yaml:"ca"`
	// ClientCert and ClientKey are PEM files for this host only, and only if the user named it, not another server.
	ClientCert string `yaml:"clientCert"`
	ClientKey  string `yaml:"clientKey"`
	// PlainHTTP disables TLS.
	PlainHTTP bool `yaml:"plainHTTP"`
	// SkipTLSVerify accepts any certificate: anyone in between can read logins, and answer in place of the host.
	SkipTLSVerify bool `yaml:"insecureSkipTLSVerify"`
	// Concurrency limits how many blobs are read or written at a time.
	Concurrency int `yaml:"-"`
	// ChunkSize is the largest part of a blob in one request, in bytes.
	ChunkSize int64 `yaml:"-"`
	// Mirror is the HOST[/PATH] that serves the host's images. The client does not use it.
	Mirror string `yaml:"mirror"`
}

// CheckHost returns a fault unless name is a host as references write it.
func CheckHost(what, name string) error {
	ref, err := image.ParseReference(name + "/x")
	if err == nil && ref.Host() == name {
		return nil
	}
	return fault.Errorf(fault.InvalidInput, what, fmt.Sprintf("%q", name),
		"write the host as references do, without a scheme and a path and with the port: registry.site:5000",
		"it is not a registry host")
}

func (c *Client) configure(pool *x509.CertPool) error {
	hosts := map[string]HostOptions{}
	maps.Copy(hosts, c.opts.Hosts)
	named := func(flag string, names []string, set func(*HostOptions)) error {
		for _, name := range names {
			if err := CheckHost("read flag "+flag, name); err != nil {
				return err
			}
			o := hosts[name]
			set(&o)
			hosts[name] = o
		}
		return nil
	}
	if err := errors.Join(
		named("--plain-http", c.opts.PlainHTTP, func(o *HostOptions) { o.PlainHTTP = true }),
		named("--insecure-skip-tls-verify", c.opts.SkipTLSVerify, func(o *HostOptions) { o.SkipTLSVerify = true }),
	); err != nil {
		return err
	}
	c.opts.Hosts = hosts
	var err error
	if c.transports[""], err = c.newTransports(pool, HostOptions{}); err != nil {
		return err
	}
	for name, o := range hosts {
		if o.CAFile == "" && o.ClientCert == "" && o.ClientKey == "" && !o.SkipTLSVerify {
			continue
		}
		if name == dockerHub {
			name = dockerHubAPI
		}
		if c.transports[name], err = c.newTransports(pool, o); err != nil {
			return err
		}
	}
	return nil
}

// transports carry requests to one host: own for those of the user, foreign for those that another server redirected.
// Both trust the same CAs. Only own shows a certificate; otherwise a server could act in the user's name.
type transports struct{ own, foreign *http.Transport }

// newTransports returns the transports for a host's settings.
func (c *Client) newTransports(pool *x509.CertPool, o HostOptions) (t transports, err error) {
	pool = pool.Clone()
	if err := addFile(pool, o.CAFile); err != nil {
		return t, err
	}
	if o.ClientCert == "" && o.ClientKey == "" {
		o.ClientCert, o.ClientKey = c.opts.ClientCert, c.opts.ClientKey
	}
	certs, err := KeyPair("--client-cert", o.ClientCert, "--client-key", o.ClientKey)
	if err != nil {
		return t, err
	}
	t = transports{newTransport(c.opts, pool, certs, false), newTransport(c.opts, pool, nil, true)}
	t.own.TLSClientConfig.InsecureSkipVerify = o.SkipTLSVerify
	t.foreign.TLSClientConfig.InsecureSkipVerify = o.SkipTLSVerify
	return t, nil
}

// KeyPair reads a certificate and its key, as flags name them; it returns nil for no files.
func KeyPair(certFlag, cert, keyFlag, key string) ([]tls.Certificate, error) {
	bad := func(subject, hint string, err error) ([]tls.Certificate, error) {
		return nil, fault.Errorf(fault.InvalidInput, "read certificate", subject, hint, "%w", err)
	}
	switch {
	case cert == "" && key == "":
		return nil, nil
	case cert == "":
		why := errors.New("there is a key and no certificate")
		return bad(key, "name the certificate of that key with "+certFlag, why)
	case key == "":
		why := errors.New("there is a certificate and no key")
		return bad(cert, "name the private key of that certificate with "+keyFlag, why)
	}
	certPEM, certErr := userfile.Read(certFlag, cert, maxCAFile)
	keyPEM, keyErr := userfile.Read(keyFlag, key, maxCAFile)
	if err := fault.Join(certErr, keyErr); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return bad(cert+" and "+key, "give a certificate and its own private key, not encrypted, as PEM", err)
	}
	return []tls.Certificate{pair}, nil
}

// transport returns the transport for an address that the user named or, if foreign, that a server named.
func (c *Client) transport(address string, foreign bool) *http.Transport {
	t, ok := c.transports[address]
	if !ok {
		t = c.transports[""]
	}
	if foreign {
		return t.foreign
	}
	return t.own
}

// MaxConfigSize limits a settings file, in bytes.
const MaxConfigSize = 1 << 20

var configFormat = strictyaml.Format{
	Op: "read registry settings", APIVersion: "vdo.vmware.com/hosts/v1", Kind: "HostsConfig", Limit: MaxConfigSize,
	Hint: "write apiVersion: vdo.vmware.com/hosts/v1, kind: HostsConfig, and hosts: with ca, clientCert, clientKey, " +
		"plainHTTP, insecureSkipTLSVerify, concurrency, chunkSize and mirror for each",
}

type configDocument struct {
	APIVersion string                 `yaml:"apiVersion"`
	Kind       string                 `yaml:"kind"`
	Hosts      map[string]hostSection `yaml:"hosts"`
}

type hostSection struct {
	HostOptions `yaml:",inline"`
	Blobs       *int    `yaml:"concurrency"`
	Chunks      *string `yaml:"chunkSize"`
}

// ParseConfig parses a settings file for single hosts. Relative file names in it are relative to the directory of name.
func ParseConfig(name string, data []byte) (map[string]HostOptions, error) {
	var doc configDocument
	if err := configFormat.Decode(name, data, &doc); err != nil {
		return nil, err
	}
	out := map[string]HostOptions{}
	for _, host := range slices.Sorted(maps.Keys(doc.Hosts)) {
		h := doc.Hosts[host]
		err := h.check(filepath.Dir(name))
		if CheckHost("", host) != nil {
			err = errors.New("it is not a registry host as references write it, with the port")
		}
		if err != nil {
			return nil, fault.Errorf(fault.InvalidInput, configFormat.Op, name, configFormat.Hint,
				"hosts.%s: %w", host, err)
		}
		out[host] = h.HostOptions
	}
	return out, nil
}

const maxConcurrency = 64

// check makes file names relative to dir and reports invalid settings.
func (h *hostSection) check(dir string) (err error) {
	h.CAFile, h.ClientCert, h.ClientKey = from(dir, h.CAFile), from(dir, h.ClientCert), from(dir, h.ClientKey)
	if h.Chunks != nil {
		if h.ChunkSize, err = ParseChunkSize(*h.Chunks); err != nil {
			return fmt.Errorf("chunkSize %q: %w", *h.Chunks, err)
		}
	}
	if h.Blobs != nil {
		h.Concurrency = *h.Blobs
	}
	switch {
	case h.Blobs != nil && (h.Concurrency < 1 || h.Concurrency > maxConcurrency):
		return fmt.Errorf("concurrency %d is not between 1 and %d", h.Concurrency, maxConcurrency)
	case (h.ClientCert == "") != (h.ClientKey == ""):
		return errors.New("clientCert and clientKey come together")
	}
	return nil
}

// from joins a relative file name to dir; an empty name stays empty.
func from(dir, name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}

// ParseChunkSize parses the size of a part, at least leastChunk.
func ParseChunkSize(s string) (int64, error) {
	n, err := size.Parse(s)
	if err == nil && n < leastChunk {
		err = fmt.Errorf("less than %d bytes", leastChunk)
	}
	return n, err
}
