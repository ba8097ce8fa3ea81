package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// access gives all tools access to the registries with TLS and login. It is a directory with logins, and a file with
// the trusted CAs.
type access struct {
	dir    string
	logins map[string]any
	trust  []byte
}

func newAccess(dir string) (*access, error) {
	a := &access{dir: filepath.Join(dir, "access"), logins: map[string]any{}}
	return a, errors.Join(os.Mkdir(a.dir, 0o700), a.write())
}

// grant adds the login of a registry, under the host that clients connect to.
func (a *access) grant(reg *registry.Registry, host string) error {
	if !strings.HasPrefix(reg.URL(), "https:") {
		return nil
	}
	login := base64.StdEncoding.EncodeToString([]byte(reg.Username + ":" + reg.Password))
	a.logins[host] = map[string]string{"auth": login}
	a.trust = append(a.trust, reg.CA()...)
	return a.write()
}

func (a *access) write() error {
	data, err := json.Marshal(map[string]any{"auths": a.logins})
	return errors.Join(err,
		os.WriteFile(filepath.Join(a.dir, "config.json"), data, 0o600),
		os.WriteFile(filepath.Join(a.dir, "trust.pem"), a.trust, 0o600))
}

// environment returns the variables by which tools find both, and the password of the signing key. All tools are Go
// programs, which read SSL_CERT_FILE.
func (a *access) environment() []string {
	return append(os.Environ(), "DOCKER_CONFIG="+a.dir, "REGISTRY_AUTH_FILE=", "COSIGN_PASSWORD=bench",
		"SSL_CERT_FILE="+filepath.Join(a.dir, "trust.pem"))
}
