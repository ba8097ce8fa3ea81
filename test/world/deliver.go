package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// Repository is where [Deliver] pushes bundles to in the mirror.
const Repository = "vdo/drivers"

// Delivery is a bundle that comes into the mirror.
type Delivery struct {
	Tag      string
	Key      string // that signs it; "" for none
	Releases []string
	// Serial of its matrix, and an operator's image of its own, so that no two bundles have the
	// same root; 0 for neither.
	Serial int
}

// Deliver runs a site's mirror with a login until Close, and has vdo-bundle lock, pull, sign and
// push bundles from an upstream world that has their releases. The keys are public, in PEM.
func Deliver(
	ctx context.Context, o UpstreamOptions, password string, bundles ...Delivery,
) (mirror *registry.Registry, keys map[string]string, err error) {
	keys = map[string]string{}
	for _, d := range bundles {
		o.Releases = append(o.Releases, d.Releases...)
		if d.Key != "" {
			keys[d.Key] = ""
		}
	}
	slices.Sort(o.Releases)
	o.Releases = slices.Compact(o.Releases)
	up, err := NewUpstream(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	defer up.Close()
	mirror, err = registry.New(registry.Options{TLS: true, Auth: registry.Basic, Password: password})
	if err != nil {
		return nil, nil, err
	}
	bin := filepath.Join(o.Dir, "bin")
	c := &connected{up, mirror, &shell.Shell{Dir: o.Dir, Path: []string{bin},
		Env: []string{"HOME=" + o.Dir, "DOCKER_CONFIG=" + o.Dir, "COSIGN_PASSWORD=secret"}}}
	err = errors.Join(
		toolchain.Programs(ctx, bin, "./bundler/cmd/vdo-bundle"),
		os.WriteFile(filepath.Join(o.Dir, "config.json"), mirror.DockerConfig(), 0o600),
		os.WriteFile(filepath.Join(o.Dir, "ca.crt"), mirror.CA(), 0o600),
	)
	for key := range keys {
		made := c.run(ctx, "keygen -o "+key)
		data, readErr := os.ReadFile(filepath.Join(o.Dir, key+".pub"))
		keys[key], err = string(data), errors.Join(err, made, readErr)
	}
	for _, d := range bundles {
		if err == nil {
			err = c.deliver(ctx, d)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, mirror.Close())
	}
	return mirror, keys, nil
}

// connected is the host on the connected side, which can reach the mirror as well.
type connected struct {
	upstream *Upstream
	mirror   *registry.Registry
	shell    *shell.Shell
}

var serial = regexp.MustCompile(`(?m)^serial: \d+$`)

func (c *connected) deliver(ctx context.Context, d Delivery) error {
	var drivers []string
	flags := c.upstream.Flags()
	lock := slices.Clone(flags)
	for _, r := range d.Releases {
		driver, _, _ := strings.Cut(r, "@")
		drivers = append(drivers, driver)
		lock = append(lock, "--release", r)
	}
	slices.Sort(drivers)
	lock = append(lock, "--drivers", strings.Join(slices.Compact(drivers), ","))
	if d.Serial > 0 {
		operator, err := c.number(ctx, d.Serial)
		if err != nil {
			return err
		}
		lock = append(lock, "--operator", operator)
	}
	archive := d.Tag + ".tar"
	err := c.run(ctx, "lock -o "+d.Tag+".yaml --replace", lock...)
	if err == nil {
		err = c.run(ctx, "pull --lock "+d.Tag+".yaml -o "+archive, flags...)
	}
	if err == nil && d.Key != "" {
		err = c.run(ctx, "sign "+archive+" --key "+d.Key+".key")
	}
	if err == nil {
		err = c.run(ctx, "push "+archive+" "+c.mirror.Host+"/"+Repository+":"+d.Tag+" --ca-file ca.crt")
	}
	if err != nil {
		return fmt.Errorf("bundle %s: %w", d.Tag, err)
	}
	return nil
}

// number gives the matrix a serial, and pushes an operator's image.
func (c *connected) number(ctx context.Context, n int) (operator string, err error) {
	matrix, err := os.ReadFile(c.upstream.MatrixFile)
	if err != nil {
		return "", err
	}
	built, err := images.Build(images.Spec{Seed: uint64(n)}) //nolint:gosec // small and positive
	if err != nil {
		return "", err
	}
	operator = fmt.Sprintf("%s/vdo/vdo-operator:v1.0.%d", c.upstream.Registry.Host, n)
	_, err = built.Push(ctx, c.upstream.Registry, operator)
	matrix = serial.ReplaceAll(matrix, fmt.Appendf(nil, "serial: %d", n))
	return operator, errors.Join(err, os.WriteFile(c.upstream.MatrixFile, matrix, 0o600))
}

func (c *connected) run(ctx context.Context, words string, more ...string) error {
	_, err := c.shell.Run(ctx, "vdo-bundle", append(strings.Fields(words), more...)...)
	return err
}
