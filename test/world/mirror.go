package world

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// StartMirror runs a site's private registry until Close, with TLS by a private CA and login by password. It listens
// at an address, IP:PORT; "" is a free port of loopback. It writes DIR/mirror-ca.crt and the login,
// DIR/docker/config.json.
func StartMirror(dir, address string) (*registry.Registry, error) {
	r, err := registry.New(registry.Options{TLS: true, Auth: registry.Basic, Names: []string{"mirror.test"}, Address: address})
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		os.MkdirAll(filepath.Join(dir, "docker"), 0o700),
		os.WriteFile(filepath.Join(dir, "mirror-ca.crt"), r.CA(), 0o600),
		os.WriteFile(filepath.Join(dir, "docker", "config.json"), r.DockerConfig(), 0o600),
	)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Serve reports facts to the parent process in one line of JSON. It returns when the parent closes standard input or
// ends in any way.
func Serve(facts any) error {
	if err := json.NewEncoder(os.Stdout).Encode(facts); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}
