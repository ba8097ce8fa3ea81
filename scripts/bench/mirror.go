package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/link"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// mirror is a registry to push to, and the host that it is spoken to by.
type mirror struct {
	reg  *registry.Registry
	host string
}

// withMirror gives an empty one.
func (j job) withMirror(speed link.Options, use func(mirror) error) (err error) {
	dir := filepath.Join(j.o.registryDir, j.set.name, "mirror")
	reg, err := registry.New(registry.Options{Dir: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reg.Close(), os.RemoveAll(dir)) }()
	host, end, err := through(reg.Host, speed)
	if err != nil {
		return err
	}
	defer end()
	return use(mirror{reg, host})
}

// through leads over a link, where there is one.
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
