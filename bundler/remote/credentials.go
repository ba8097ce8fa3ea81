package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Credential is a login. The zero value is none. RefreshToken is what docker calls an
// identity token, given to the token service; AccessToken is given to the registry as
// it is.
type Credential = auth.Credential

// CredentialFunc finds the login for a repository: the registry's host as
// references write it, and the path in it. None is the zero Credential.
type CredentialFunc func(ctx context.Context, host, path string) (Credential, error)

const (
	maxConfig = 4 << 20
	// dockerHubKey is how docker's configuration names docker.io.
	dockerHubKey = "https://index.docker.io/v1/"
)

// DefaultCredentials looks where docker and podman keep logins, in this order:
//
//	$REGISTRY_AUTH_FILE
//	$DOCKER_CONFIG/config.json, else ~/.docker/config.json
//	$XDG_RUNTIME_DIR/containers/auth.json
//	$XDG_CONFIG_HOME/containers/auth.json, else ~/.config/containers/auth.json
//
// In each file the longest key that is the repository or a folder above it wins,
// then the host; credHelpers and credsStore are asked as docker asks them. The
// first file that has a login for the repository decides.
func DefaultCredentials(ctx context.Context, host, path string) (Credential, error) {
	for _, name := range configFiles(os.Getenv) {
		data, err := readFile(name, maxConfig)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Credential{}, badConfig(name, err)
		}
		find, err := ConfigCredentials(name, data)
		if err != nil {
			return Credential{}, err
		}
		if c, err := find(ctx, host, path); err != nil || c != (Credential{}) {
			return c, err
		}
	}
	return Credential{}, nil
}

// configFiles names the files of DefaultCredentials.
func configFiles(getenv func(string) string) []string {
	home := getenv("HOME")
	var out []string
	add := func(dir string, parts ...string) {
		if dir != "" {
			out = append(out, filepath.Join(append([]string{dir}, parts...)...))
		}
	}
	add(getenv("REGISTRY_AUTH_FILE"))
	if dir := getenv("DOCKER_CONFIG"); dir != "" {
		add(dir, "config.json")
	} else {
		add(home, ".docker", "config.json")
	}
	add(getenv("XDG_RUNTIME_DIR"), "containers", "auth.json")
	if dir := getenv("XDG_CONFIG_HOME"); dir != "" {
		add(dir, "containers", "auth.json")
	} else {
		add(home, ".config", "containers", "auth.json")
	}
	return out
}

// configFile is what matters of a docker config.json or a podman auth.json. The entries
// are read by oras; which of them is for a repository is found here, since oras has a
// key of one repository hold for the whole host.
type configFile struct {
	Auths       map[string]json.RawMessage `json:"auths"`
	CredHelpers map[string]string          `json:"credHelpers"`
	CredsStore  string                     `json:"credsStore"`
}

func parseConfig(name string, data []byte) (file configFile, err error) {
	if len(bytes.TrimSpace(data)) > 0 && json.Unmarshal(data, &file) != nil {
		return file, badConfig(name, errors.New("it is no JSON of docker's form")) // the cause could quote a secret
	}
	return file, nil
}

// ConfigCredentials reads a docker config.json or podman auth.json; name is for
// error messages.
func ConfigCredentials(name string, data []byte) (CredentialFunc, error) {
	file, err := parseConfig(name, data)
	if err != nil {
		return nil, err
	}
	logins := make(map[string]Credential, len(file.Auths))
	for key, entry := range file.Auths {
		c, err := credentialOf(entry)
		if err != nil {
			return nil, badConfig(name, fmt.Errorf("auths[%q]: %w", key, err))
		}
		logins[normalKey(key)] = c
	}
	return func(ctx context.Context, host, path string) (Credential, error) {
		return file.find(ctx, logins, host, path)
	}, nil
}

func badConfig(name string, err error) error {
	return &fault.Error{
		Reason: fault.InvalidInput, Op: "read credentials", Subject: name,
		Hint: "mend or remove the file, and log in again with `docker login` or `podman login`", Err: err,
	}
}

// credentialOf reads an entry of auths. Why it cannot be read is not said: oras quotes
// the secret.
func credentialOf(entry json.RawMessage) (Credential, error) {
	const key = "entry"
	data, err := json.Marshal(map[string]any{"auths": map[string]json.RawMessage{key: entry}})
	if err != nil {
		return Credential{}, errors.New("it is no JSON of docker's form")
	}
	store, err := credentials.NewMemoryStoreFromDockerConfig(data)
	if err != nil {
		return Credential{}, errors.New("it is no login of docker's form: auth is base64 of username:password")
	}
	c, err := store.Get(context.Background(), key)
	c.Password = strings.TrimRight(c.Password, "\x00") // which old versions of docker pad it with
	return c, err
}

// normalKey reduces a key of auths to host[/path]: docker's older keys are URLs.
func normalKey(key string) string {
	if rest, ok := cutScheme(key); ok {
		key, _, _ = strings.Cut(rest, "/")
	}
	key = strings.TrimSuffix(key, "/")
	host, path, hasPath := strings.Cut(key, "/")
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		host = "docker.io"
	}
	if !hasPath || path == "v1" || path == "v2" {
		return host
	}
	return host + "/" + path
}

func cutScheme(key string) (string, bool) {
	if rest, ok := strings.CutPrefix(key, "https://"); ok {
		return rest, true
	}
	return strings.CutPrefix(key, "http://")
}

func (f configFile) find(ctx context.Context, logins map[string]Credential, host, path string) (Credential, error) {
	for key := host + "/" + path; ; key = key[:strings.LastIndexByte(key, '/')] {
		if c := logins[key]; c != (Credential{}) {
			return c, nil
		}
		if program := f.CredHelpers[key]; program != "" {
			return helper{name: program, within: helperTime}.Get(ctx, key)
		}
		if !strings.Contains(key, "/") {
			break
		}
	}
	server := host
	if host == "docker.io" {
		server = dockerHubKey
		if program := f.CredHelpers["index.docker.io"]; program != "" {
			return helper{name: program, within: helperTime}.Get(ctx, server)
		}
	}
	if f.CredsStore == "" {
		return Credential{}, nil
	}
	return helper{name: f.CredsStore, within: helperTime}.Get(ctx, server)
}
