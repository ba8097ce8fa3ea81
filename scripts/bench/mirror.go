package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/link"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// withMirror gives the job an empty registry to push to, instead of the one that it pulls from.
func (j job) withMirror(use func(job) (sample, error)) (s sample, err error) {
	dir := filepath.Join(j.o.registryDir, j.set.name, "mirror")
	reg, err := registry.New(serving(dir, j.way.tls))
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, reg.Close(), os.RemoveAll(dir)) }()
	host, end, err := through(reg.Host, j.way.Options)
	if err != nil {
		return s, err
	}
	defer end()
	if err := j.o.access.grant(reg, host); err != nil {
		return s, err
	}
	j.from, j.host = reg, host
	return use(j)
}

// serving returns the options of a registry that keeps its content in a directory.
func serving(dir string, tls bool) registry.Options {
	o := registry.Options{Dir: dir, TLS: tls}
	if tls {
		o.Auth = registry.Basic
	}
	return o
}

// through returns the address over a link, if any.
func through(host string, speed link.Options) (string, func(), error) {
	if speed == (link.Options{}) {
		return host, func() {}, nil
	}
	l, err := link.New(host, speed)
	if err != nil {
		return "", nil, err
	}
	return l.Host, func() { _ = l.Close() }, nil
}
