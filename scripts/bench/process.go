package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/link"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
)

type sample struct {
	wall, onDisk, cpu time.Duration
	memory, wire      int64
	requests          int
}

const timeout = 4 * time.Minute

// process runs a program to its end. If stopAt is not nil, it kills the program as soon as stopAt returns true.
func process(ctx context.Context, a *access, reg *registry.Registry, path string, args []string, stopAt func() bool) (sample, error) {
	unix.Sync() // earlier writes do not count
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if reg != nil {
		reg.ForgetRequests()
	}
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // the tools under test
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = a.environment()
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return sample{}, err
	}
	peak, ended := make(chan int, 1), make(chan error, 1)
	go func() { peak <- shell.Peak(cmd.Process.Pid) }()
	go func() { ended <- cmd.Wait() }()
	err := wait(cmd.Process, ended, stopAt)
	s := sample{wall: time.Since(began)}
	unix.Sync()
	s.onDisk, s.memory = time.Since(began), int64(<-peak)<<10
	s.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if reg != nil {
		s.wire, s.requests = traffic(reg)
	}
	if err != nil {
		tail := out.Bytes()
		tail = tail[max(0, len(tail)-2000):]
		err = fmt.Errorf("%s %v: %w\n%s", filepath.Base(path), args, errors.Join(err, ctx.Err()), tail)
	}
	return s, err
}

// wait waits for the end of a process. With stopAt it kills the process as soon as stopAt returns true.
func wait(p *os.Process, ended <-chan error, stopAt func() bool) error {
	for stopAt != nil {
		select {
		case err := <-ended:
			return err
		case <-time.After(4 * time.Millisecond):
			if stopAt() && p.Kill() == nil {
				<-ended //nolint:errcheck // it was killed
				return nil
			}
		}
	}
	return <-ended
}

func traffic(reg *registry.Registry) (wire int64, requests int) {
	list := reg.Requests()
	for _, r := range list {
		wire += r.Sent + r.Received
	}
	return wire, len(list)
}

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
