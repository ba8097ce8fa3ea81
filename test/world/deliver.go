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

// Repository is where a [Connected] host pushes bundles to in the mirror.
const Repository = "vdo/drivers"

// Connected is the host on the connected side, which can reach the mirror as well.
type Connected struct {
	upstream *Upstream
	mirror   *registry.Registry
	shell    *shell.Shell
}

// NewConnected sets the host up in the upstream world's folder, with vdo-bundle, the mirror's
// login, and keys of these names.
func NewConnected(ctx context.Context, up *Upstream, mirror *registry.Registry, keys ...string) (*Connected, error) {
	bin := filepath.Join(up.dir, "bin")
	c := &Connected{upstream: up, mirror: mirror, shell: &shell.Shell{Dir: up.dir, Path: []string{bin},
		Env: []string{"HOME=" + up.dir, "DOCKER_CONFIG=" + up.dir, "COSIGN_PASSWORD=secret"}}}
	err := errors.Join(
		toolchain.Programs(ctx, bin, "./bundler/cmd/vdo-bundle"),
		os.WriteFile(filepath.Join(up.dir, "config.json"), mirror.DockerConfig(), 0o600),
		os.WriteFile(filepath.Join(up.dir, "ca.crt"), mirror.CA(), 0o600),
	)
	for _, key := range keys {
		err = errors.Join(err, c.run(ctx, "keygen -o "+key))
	}
	return c, err
}

// PublicKey returns the public half of a key, in PEM.
func (c *Connected) PublicKey(key string) (string, error) {
	data, err := os.ReadFile(filepath.Join(c.upstream.dir, key+".pub"))
	return string(data), err
}

// Delivery is a bundle that comes into the mirror.
type Delivery struct {
	Tag      string
	Key      string // that signs it; "" for none
	Releases []string
	// Serial of its matrix, and an operator's image of its own, so that no two bundles have the
	// same root; 0 for neither.
	Serial int
}

var serial = regexp.MustCompile(`(?m)^serial: \d+$`)

// Deliver has vdo-bundle lock, pull, sign and push a bundle.
func (c *Connected) Deliver(ctx context.Context, d Delivery) error {
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
	steps := [][]string{
		append([]string{"lock -o " + d.Tag + ".yaml"}, lock...),
		append([]string{"pull --lock " + d.Tag + ".yaml -o " + archive}, flags...),
	}
	if d.Key != "" {
		steps = append(steps, []string{"sign " + archive + " --key " + d.Key + ".key"})
	}
	reference := c.mirror.Host + "/" + Repository + ":" + d.Tag
	steps = append(steps, []string{"push " + archive + " " + reference + " --ca-file ca.crt"})
	for _, step := range steps {
		if err := c.run(ctx, step[0], step[1:]...); err != nil {
			return fmt.Errorf("bundle %s: %w", d.Tag, err)
		}
	}
	return nil
}

// number gives the matrix a serial, and pushes an operator's image.
func (c *Connected) number(ctx context.Context, n int) (operator string, err error) {
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

func (c *Connected) run(ctx context.Context, words string, more ...string) error {
	_, err := c.shell.Run(ctx, "vdo-bundle", append(strings.Fields(words), more...)...)
	return err
}
