package cluster

import (
	"context"
	"os"
	"path/filepath"
)

// backup is where the data of etcd is kept.
const backup = "etcd.kept"

// Keep makes a backup of all that the API server has now.
func (c *Cluster) Keep(ctx context.Context) error { return c.copyData(ctx, "etcd", backup) }

// Restore puts the backup back, with the resource versions of then, as a snapshot of the control
// plane's machine does.
func (c *Cluster) Restore(ctx context.Context) error { return c.copyData(ctx, backup, "etcd") }

func (c *Cluster) copyData(ctx context.Context, from, to string) error {
	c.end("kube-apiserver", (*process).kill)
	c.end("etcd", (*process).stop)
	from, to = filepath.Join(c.dir, from), filepath.Join(c.dir, to)
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	return c.serve(ctx)
}
