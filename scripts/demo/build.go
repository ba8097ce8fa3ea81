package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// binDir returns the directory that keeps built programs for the next run.
func binDir() string { return filepath.Join(toolchain.Root(), "bin", "demo") }

var kubectl = toolchain.Tool{Name: "kubectl"}

// controlPlane are the programs of the cluster, at the version that it reports.
var controlPlane = []toolchain.Tool{
	{Name: "kube-apiserver", Version: toolchain.FirstKubernetes},
	{Name: "kube-controller-manager", Version: toolchain.FirstKubernetes},
	{Name: "kube-scheduler", Version: toolchain.FirstKubernetes},
	kubectl, {Name: "etcd"}, {Name: "kwok"},
}

// buildFirst builds the programs of the connected host. It starts to build the rest at low priority: a first build of
// the control plane takes minutes, and people see the bundler meanwhile.
func (d *demo) buildFirst(ctx context.Context) error {
	for _, dir := range []string{"connected", "site", "tmp"} {
		if err := os.MkdirAll(d.path(dir), 0o755); err != nil {
			return err
		}
	}
	d.rest = background(func() error { return d.buildRest(ctx) })
	return d.await(ctx, "vdo-bundle", background(func() error {
		return toolchain.Builder{}.Project(ctx, binDir(),
			"./bundler/cmd/vdo-bundle", "./test/realnode/driver")
	}))
}

func (d *demo) buildRest(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	builder := toolchain.Builder{Background: true}
	group.Go(func() error {
		return builder.Project(ctx, binDir(), "./operator/cmd/vdo-operator", "./operator/cmd/vdoctl")
	})
	group.Go(func() error {
		_, err := builder.Ensure(ctx, controlPlane...)
		return err
	})
	return group.Wait()
}

func (d *demo) awaitRest(ctx context.Context) error {
	err := d.await(ctx, "control plane and operator", d.rest)
	d.rest = nil
	if err != nil {
		return err
	}
	path, err := toolchain.Builder{}.Ensure(ctx, kubectl)
	if err != nil {
		return err
	}
	d.isolated.Path = append(d.isolated.Path, filepath.Dir(path[0]))
	return nil
}

// hosts sets up the hosts where people type.
func (d *demo) hosts() {
	d.connected = &shell.Shell{
		Dir: d.path("connected"), Path: []string{binDir()}, Echo: command,
		Env: []string{"VDO_KEY_PASSWORD=a-password-for-the-demo", "HOME=" + d.path("connected"), "DOCKER_CONFIG=" + d.path("connected")},
	}
	d.isolated = &shell.Shell{
		Dir: d.path("site"), Path: []string{binDir()}, Echo: command,
		Env: []string{
			"HOME=" + d.path("site"), "DOCKER_CONFIG=" + d.path("site/docker"),
			"KUBECONFIG=" + d.path("site/cluster/kubeconfig"), "KUBECACHEDIR=" + d.path("site/cache"),
		},
	}
}

func background(f func() error) chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// await prints now and then what is being built, and for how long, until that is done.
func (d *demo) await(ctx context.Context, what string, done <-chan error) error {
	began, tick := time.Now(), time.NewTicker(10*time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return errors.Join(err, ctx.Err())
		case <-tick.C:
			say("building %s, once for this machine: %s", what, time.Since(began).Round(time.Second))
		}
	}
}
