package registry

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Credential is a login. The zero value is none.
type Credential struct {
	Username, Password string
	// IdentityToken is an OAuth2 refresh token, given to the token service.
	IdentityToken string
	// RegistryToken is a bearer token, given to the registry as it is.
	RegistryToken string
}

// IsZero tells whether there is no login.
func (c Credential) IsZero() bool { return c == Credential{} }

// CredentialFunc finds the login for a repository: the registry's host as
// references write it, and the path in it. None is the zero Credential.
type CredentialFunc func(ctx context.Context, host, path string) (Credential, error)

const (
	maxConfig = 4 << 20
	maxSecret = 128 << 10 // a token of a credential helper
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
		if c, err := find(ctx, host, path); err != nil || !c.IsZero() {
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

// configFile is what matters of a docker config.json or a podman auth.json.
type configFile struct {
	Auths       map[string]configAuth `json:"auths"`
	CredHelpers map[string]string     `json:"credHelpers"`
	CredsStore  string                `json:"credsStore"`
}

type configAuth struct {
	Auth          string `json:"auth"` // base64 of username:password
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// ConfigCredentials reads a docker config.json or podman auth.json; name is for
// error messages.
func ConfigCredentials(name string, data []byte) (CredentialFunc, error) {
	var file configFile
	if len(bytes.TrimSpace(data)) > 0 {
		if err := json.Unmarshal(data, &file); err != nil {
			return nil, badConfig(name, errors.New("it is no JSON of docker's form")) // the cause could quote a secret
		}
	}
	logins := make(map[string]Credential, len(file.Auths))
	for key, a := range file.Auths {
		c, err := a.credential()
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

func (a configAuth) credential() (Credential, error) {
	c := Credential{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken}
	if a.Auth == "" {
		return c, nil
	}
	plain, err := base64.StdEncoding.DecodeString(a.Auth)
	user, password, ok := strings.Cut(strings.TrimRight(string(plain), "\x00"), ":")
	if err != nil || !ok {
		return c, errors.New("auth is no base64 of username:password")
	}
	c.Username, c.Password = user, password
	return c, nil
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
		if c := logins[key]; !c.IsZero() {
			return c, nil
		}
		if helper := f.CredHelpers[key]; helper != "" {
			return askHelper(ctx, helper, key, helperTime)
		}
		if !strings.Contains(key, "/") {
			break
		}
	}
	server := host
	if host == "docker.io" {
		server = dockerHubKey
		if helper := f.CredHelpers["index.docker.io"]; helper != "" {
			return askHelper(ctx, helper, server, helperTime)
		}
	}
	if f.CredsStore == "" {
		return Credential{}, nil
	}
	return askHelper(ctx, f.CredsStore, server, helperTime)
}

var helperName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// How long a credential helper may take, and how long what it started may hold its
// output after its end.
const (
	helperTime = time.Minute
	helperRest = time.Second
)

// askHelper runs docker-credential-NAME get, as docker does it: the server on
// standard input, JSON on standard output. A helper that does not answer in time, or
// answers without end, is killed.
func askHelper(ctx context.Context, name, server string, within time.Duration) (Credential, error) {
	program := "docker-credential-" + name
	bad := func(err error) (Credential, error) {
		return Credential{}, &fault.Error{
			Reason: fault.Unauthorized, Op: "ask credential helper", Subject: program + " for " + server,
			Hint: fmt.Sprintf("install %s, or log in without a helper", program), Err: err,
		}
	}
	if !helperName.MatchString(name) {
		return bad(errors.New("that is no program's name"))
	}
	slow := fmt.Errorf("it does not answer within %s", within)
	ctx, stop := context.WithTimeoutCause(ctx, within, slow)
	defer stop()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	out := limitedBuffer{limit: maxSecret, full: func() { end(errEndless) }}
	cmd := exec.CommandContext(ctx, program, "get") //nolint:gosec // the user's configuration names the helper
	cmd.Stdin, cmd.Stdout, cmd.WaitDelay = strings.NewReader(server), &out, helperRest
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) { // that one has ended well, and what it started goes on
		if cause := context.Cause(ctx); cause != nil {
			return bad(cause)
		}
		if bytes.Contains(out.data, []byte("credentials not found")) {
			return Credential{}, nil
		}
		return bad(err) // its output stays unsaid: it may hold the secret
	}
	var answer struct{ Username, Secret string }
	if err := json.Unmarshal(out.data, &answer); err != nil {
		return bad(errors.New("its answer is no JSON"))
	}
	if answer.Username == "<token>" {
		return Credential{IdentityToken: answer.Secret}, nil
	}
	return Credential{Username: answer.Username, Password: answer.Secret}, nil
}

var errEndless = errors.New("its answer is too long")

// limitedBuffer keeps what a credential helper may reasonably say. It has no other way
// to write than Write, which is where the limit is.
type limitedBuffer struct {
	data  []byte
	limit int
	full  func() // called where there is more
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if len(b.data)+len(p) > b.limit {
		b.full()
		return 0, errEndless
	}
	b.data = append(b.data, p...)
	return len(p), nil
}
