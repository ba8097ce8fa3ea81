package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
)

// Credential is a login; the zero value is none. RefreshToken is docker's identity token, for the token service.
// AccessToken goes to the registry unchanged. Source is the file or the program that has it, for messages.
type Credential struct{ Username, Password, RefreshToken, AccessToken, Source string }

// ofEntry begins the Source of a login for a path. A host's login, which `login` writes, does not replace it.
const ofEntry = "the entry "

// String names the login without a secret; "" is none.
func (c Credential) String() string {
	switch {
	case c == (Credential{}):
		return ""
	case c.Source == "":
		return "the login of " + cmp.Or(c.Username, "a token")
	}
	return "the login of " + cmp.Or(c.Username, "a token") + " from " + c.Source
}

// CredentialFunc finds the login for a repository: the host as references write it, and the path in it. It returns
// the zero Credential if there is none.
type CredentialFunc func(ctx context.Context, host, path string) (Credential, error)

const (
	maxConfig = 4 << 20
	// dockerHubIndex is a name of docker.io in docker's configuration.
	dockerHubIndex = "index.docker.io"
	// podmanDir may be closed to others than root.
	podmanDir = "/run/containers/"
)

// DefaultCredentials looks where docker and podman keep logins, in this order:
//
//	$REGISTRY_AUTH_FILE
//	$DOCKER_CONFIG/config.json, else ~/.docker/config.json
//	$XDG_RUNTIME_DIR/containers/auth.json, else /run/containers/UID/auth.json
//	$XDG_CONFIG_HOME/containers/auth.json, else ~/.config/containers/auth.json
//
// The first file with a login for the repository decides. In it the longest key that is the
// repository or a parent of it wins, then the host. For each key, a helper (credHelpers,
// credsStore, as docker asks them) comes before an entry of auths.
func DefaultCredentials(ctx context.Context, host, path string) (Credential, error) {
	for _, name := range configFiles(os.Getenv) {
		data, err := userfile.Read("", name, maxConfig)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) && strings.HasPrefix(name, podmanDir) {
			continue
		}
		if err != nil {
			return Credential{}, err
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

// configFiles returns the files of DefaultCredentials.
func configFiles(getenv func(string) string) []string {
	below := func(dir string, parts ...string) string {
		if dir == "" {
			return ""
		}
		return filepath.Join(dir, filepath.Join(parts...))
	}
	home, uid := getenv("HOME"), strconv.Itoa(os.Getuid())
	files := []string{
		getenv("REGISTRY_AUTH_FILE"),
		below(cmp.Or(getenv("DOCKER_CONFIG"), below(home, ".docker")), "config.json"),
		cmp.Or(below(getenv("XDG_RUNTIME_DIR"), "containers", "auth.json"), below(podmanDir, uid, "auth.json")),
		below(cmp.Or(getenv("XDG_CONFIG_HOME"), below(home, ".config")), "containers", "auth.json"),
	}
	return slices.DeleteFunc(files, func(name string) bool { return name == "" })
}

// configFile is the used part of a docker config.json or podman auth.json. Package oras reads the entries. This
// package selects the entry, since oras applies a repository's key to its whole host.
type configFile struct {
	Auths       map[string]json.RawMessage `json:"auths"`
	CredHelpers map[string]string          `json:"credHelpers"`
	CredsStore  string                     `json:"credsStore"`
}

func parseConfig(name string, data []byte) (file configFile, err error) {
	if len(bytes.TrimSpace(data)) > 0 && json.Unmarshal(data, &file) != nil {
		return file, badConfig(name, errors.New("it is not JSON of docker's form")) // the cause could quote a secret
	}
	return file, nil
}

// ConfigCredentials parses a docker config.json or podman auth.json; name is for error messages.
func ConfigCredentials(name string, data []byte) (CredentialFunc, error) {
	file, err := parseConfig(name, data)
	if err != nil {
		return nil, err
	}
	logins, err := file.logins(name)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, host, path string) (Credential, error) {
		return file.find(ctx, logins, host, path)
	}, nil
}

// logins returns the entries of auths by host[/path], without entries that hold no login. Among several for one host
// it prefers the key that [Client.Login] writes, else the first by name.
func (f configFile) logins(name string) (map[string]Credential, error) {
	out := make(map[string]Credential, len(f.Auths))
	for _, key := range slices.Sorted(maps.Keys(f.Auths)) {
		c, err := credentialOf(f.Auths[key])
		if err != nil {
			return nil, badConfig(name, fmt.Errorf("auths[%q]: %w", key, err))
		}
		at := normalKey(key)
		if _, another := out[at]; c != (Credential{}) && (!another || key == credentials.ServerAddressFromRegistry(at)) {
			c.Source = name
			if strings.Contains(at, "/") {
				c.Source = ofEntry + at + " of " + name
			}
			out[at] = c
		}
	}
	return out, nil
}

func badConfig(name string, err error) error {
	return fault.Errorf(fault.InvalidInput, "read credentials", name,
		"correct or remove the file, and log in again with `vdo-bundle login HOST -u USER`", "%w", err)
}

// credentialOf decodes an entry of auths. It hides the cause of an error: oras quotes the secret.
func credentialOf(entry json.RawMessage) (Credential, error) {
	const key = "entry"
	data, err := json.Marshal(map[string]any{"auths": map[string]json.RawMessage{key: entry}})
	if err != nil {
		return Credential{}, errors.New("it is not JSON of docker's form")
	}
	store, err := credentials.NewMemoryStoreFromDockerConfig(data)
	if err != nil {
		return Credential{}, errors.New("it is not a login of docker's form: auth is base64 of username:password")
	}
	c, err := store.Get(context.Background(), key)
	return Credential{
		Username: c.Username, RefreshToken: c.RefreshToken, AccessToken: c.AccessToken,
		Password: strings.TrimRight(c.Password, "\x00"), // old versions of docker pad it
	}, err
}

// normalKey reduces a key of auths to host[/path]: docker's older keys are URLs.
func normalKey(key string) string {
	for _, scheme := range []string{"https://", "http://"} {
		if rest, ok := strings.CutPrefix(key, scheme); ok {
			key, _, _ = strings.Cut(rest, "/")
		}
	}
	key = strings.TrimSuffix(key, "/")
	host, path, hasPath := strings.Cut(key, "/")
	if host == dockerHubIndex || host == dockerHubAPI {
		host = dockerHub
	}
	if !hasPath || path == "v1" || path == "v2" {
		return host
	}
	return host + "/" + path
}

// find returns the login of the longest key. As in docker, which stores new logins there, a key's helper comes before
// the file's own entry.
func (f configFile) find(ctx context.Context, logins map[string]Credential, host, path string) (Credential, error) {
	for key := host + "/" + path; key != host; key = key[:strings.LastIndexByte(key, '/')] {
		if c, err := helper(f.CredHelpers[key]).get(ctx, key); err != nil || c != (Credential{}) {
			return c, err
		}
		if c := logins[key]; c != (Credential{}) {
			return c, nil
		}
	}
	c, err := f.helperOf(host).get(ctx, credentials.ServerAddressFromRegistry(host))
	if err != nil || c != (Credential{}) {
		return c, err
	}
	return logins[host], nil
}

// helperOf returns the credential helper of a host, else that of all hosts, or "".
func (f configFile) helperOf(host string) helper {
	keys := []string{host}
	if host == dockerHub {
		keys = append(keys, dockerHubIndex, credentials.ServerAddressFromRegistry(host))
	}
	for _, key := range keys {
		if program, ok := f.CredHelpers[key]; ok { // "" is the file
			return helper(program)
		}
	}
	return helper(f.CredsStore)
}
