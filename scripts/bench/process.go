package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// process runs a command line of the job's tool to its end. With half it kills the tool after half of the set's bytes.
func (j job) process(ctx context.Context, line string, half bool) (sample, error) {
	args := j.tool.args(j.tool.lines[line], j.set, j.host, j.bundle(), j.base)
	env, err := j.environment()
	if err != nil {
		return sample{}, err
	}
	unix.Sync() // earlier writes do not count
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	j.from.ForgetRequests()
	cmd := exec.CommandContext(ctx, j.tool.path, args...) //nolint:gosec // the tools under test
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = env
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return sample{}, err
	}
	peak, ended := make(chan int, 1), make(chan error, 1)
	go func() { peak <- shell.Peak(cmd.Process.Pid) }()
	go func() { ended <- cmd.Wait() }()
	err = j.wait(cmd.Process, ended, half)
	s := sample{wall: time.Since(began)}
	unix.Sync()
	s.onDisk, s.memory = time.Since(began), int64(<-peak)<<10
	s.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	s.wire, s.requests = traffic(j.from)
	if err != nil {
		tail := out.Bytes()
		tail = tail[max(0, len(tail)-2000):]
		err = fmt.Errorf("%s %v: %w\n%s", filepath.Base(j.tool.path), args, errors.Join(err, ctx.Err()), tail)
	}
	return s, err
}

// wait waits for the end of a process. With half it kills the process after half of the set's bytes.
func (j job) wait(p *os.Process, ended <-chan error, half bool) error {
	for half {
		select {
		case err := <-ended:
			return err
		case <-time.After(4 * time.Millisecond):
			if wire, _ := traffic(j.from); wire > j.set.bytes/2 && p.Kill() == nil {
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

// environment gives the tool login and CA of the job's registry, and the password of the signing key. All tools are Go
// programs, which read SSL_CERT_FILE.
func (j job) environment() ([]string, error) {
	login := base64.StdEncoding.EncodeToString([]byte(j.from.Username + ":" + j.from.Password))
	config := fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, j.host, login) // a link has another host
	trust := filepath.Join(j.o.dir, "trust.pem")
	env := append(os.Environ(), "DOCKER_CONFIG="+j.o.dir, "REGISTRY_AUTH_FILE=", "COSIGN_PASSWORD=bench",
		"SSL_CERT_FILE="+trust)
	return env, errors.Join(
		os.WriteFile(filepath.Join(j.o.dir, "config.json"), config, 0o600), os.WriteFile(trust, j.from.CA(), 0o600),
	)
}

// mirror is a registry to push to, over the job's link.
type mirror struct {
	*registry.Registry
	host  string
	close func()
}

// openMirror gives the job an empty mirror.
func (j *job) openMirror() error {
	j.closeMirror()
	dir := filepath.Join(j.o.registryDir, j.set.name, "mirror")
	reg, err := registry.New(serving(dir, j.way.tls))
	if err != nil {
		return err
	}
	host, end, err := through(reg.Host, j.way.Options)
	if err != nil {
		return errors.Join(err, reg.Close())
	}
	j.mirror = &mirror{reg, host, func() {
		end()
		_, _ = reg.Close(), os.RemoveAll(dir)
	}}
	return nil
}

func (j *job) closeMirror() {
	if j.mirror != nil {
		j.mirror.close()
		j.mirror = nil
	}
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
