package remote

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/strictyaml"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
)

// MaxConfigSize bounds a file of settings, in bytes.
const MaxConfigSize = 1 << 20

// Names that a file of settings begins with.
const (
	configAPIVersion = "vdo.vmware.com/hosts/v1"
	configKind       = "HostsConfig"
)

// Config is a file of settings of single hosts; see the package comment.
type Config struct {
	Hosts map[string]HostOptions
	// Mirrors are HOST[/PATH] by the host that images are fetched from there for.
	Mirrors map[string]string
}

type configDocument struct {
	APIVersion string                 `yaml:"apiVersion"`
	Kind       string                 `yaml:"kind"`
	Hosts      map[string]hostSection `yaml:"hosts"`
}

type hostSection struct {
	CA          string `yaml:"ca"`
	ClientCert  string `yaml:"clientCert"`
	ClientKey   string `yaml:"clientKey"`
	PlainHTTP   bool   `yaml:"plainHTTP"`
	Concurrency *int   `yaml:"concurrency"`
	ChunkSize   string `yaml:"chunkSize"`
	Mirror      string `yaml:"mirror"`
}

// ParseConfig reads settings of single hosts; name is the file's, and the files
// that it names are found from its folder. All that is wrong is told together.
func ParseConfig(name string, data []byte) (*Config, error) {
	bad := func(at string, err error) error {
		if at != "" {
			err = fmt.Errorf("%s: %w", at, err)
		}
		return &fault.Error{
			Reason: fault.InvalidInput, Op: "read registry settings", Subject: name, Err: err,
			Hint: "write apiVersion: " + configAPIVersion + ", kind: " + configKind + ", and hosts: with ca, clientCert, clientKey, plainHTTP, concurrency, chunkSize and mirror for each",
		}
	}
	var doc configDocument
	if err := strictyaml.Decode(data, MaxConfigSize, &doc); err != nil {
		return nil, bad("", err)
	}
	if doc.APIVersion != configAPIVersion || doc.Kind != configKind {
		return nil, bad("", fmt.Errorf("it is a %.100q of %.100q", doc.Kind, doc.APIVersion))
	}
	c := &Config{Hosts: map[string]HostOptions{}, Mirrors: map[string]string{}}
	var problems []error
	for _, host := range slices.Sorted(maps.Keys(doc.Hosts)) {
		h := doc.Hosts[host]
		o, errs := h.options(filepath.Dir(name))
		if err := CheckHost("", host); err != nil {
			errs = append(errs, errors.New("it is not a registry host as references write it, with the port"))
		}
		for _, err := range errs {
			problems = append(problems, bad("hosts."+host, err))
		}
		c.Hosts[host] = o
		if h.Mirror != "" {
			c.Mirrors[host] = h.Mirror
		}
	}
	if err := fault.Join(problems...); err != nil {
		return nil, err
	}
	return c, nil
}

const maxConcurrency = 64

func (h hostSection) options(dir string) (HostOptions, []error) {
	var errs []error
	o := HostOptions{
		CAFile: from(dir, h.CA), ClientCert: from(dir, h.ClientCert), ClientKey: from(dir, h.ClientKey), PlainHTTP: h.PlainHTTP,
	}
	if h.Concurrency != nil {
		if o.Concurrency = *h.Concurrency; o.Concurrency < 1 || o.Concurrency > maxConcurrency {
			errs = append(errs, fmt.Errorf("concurrency %d is not between 1 and %d", o.Concurrency, maxConcurrency))
		}
	}
	if h.ChunkSize != "" {
		var err error
		if o.ChunkSize, err = ParseChunkSize(h.ChunkSize); err != nil {
			errs = append(errs, fmt.Errorf("chunkSize %q: %w", h.ChunkSize, err))
		}
	}
	if (h.ClientCert == "") != (h.ClientKey == "") {
		errs = append(errs, errors.New("clientCert and clientKey come together"))
	}
	return o, errs
}

// from finds a file from a folder; no file stays none.
func from(dir, name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}

// ParseChunkSize reads the size of a part, which is not smaller than any registry
// takes and any upload needs.
func ParseChunkSize(s string) (int64, error) {
	n, err := size.Parse(s)
	if err == nil && n < leastChunk {
		err = fmt.Errorf("less than %d bytes", leastChunk)
	}
	return n, err
}
