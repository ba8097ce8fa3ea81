package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/link"
)

// newer pulls the version after the one that is there, and pushes it into a registry
// that has that one.
func (j job) newer(ctx context.Context, host string, speed link.Options) {
	if j.tool.own == nil && j.tool.ext != "" {
		j.table.cannot(rowDeltaPull, j.tool)
		j.table.cannot(rowDeltaPush, j.tool)
		return
	}
	next := job{set: j.set.newer, tool: j.tool, o: j.o, table: j.table}
	pulled := j.measure(rowDeltaPull, func() (sample, error) {
		if err := errors.Join(next.remove(), j.copyTo(next)); err != nil {
			return sample{}, err
		}
		return process(ctx, j.set.upstream, j.tool.path, j.pullNewer(next, host), nil)
	})
	defer next.remove() //nolint:errcheck // scratch
	if !pulled {
		return
	}
	j.measure(rowDeltaPush, func() (s sample, err error) {
		if err := next.leaveOneEntry(); err != nil {
			return s, err
		}
		err = j.withMirror(speed, func(m mirror) error {
			if _, err := process(ctx, nil, j.tool.path, j.tool.push(j.set, m.reg.Host, j.bundle()), nil); err != nil {
				return err
			}
			s, err = process(ctx, m.reg, j.tool.path, j.tool.push(next.set, m.host, next.bundle()), nil)
			return err
		})
		return s, err
	})
}

func (j job) pullNewer(next job, host string) []string {
	if j.tool.own != nil {
		return j.tool.own.delta(next.set, host, j.bundle(), next.bundle())
	}
	return j.tool.pull(next.set, host, next.bundle())
}

// copyTo gives a tool that pulls into folders one that has the older version. Blobs
// are links, since nobody writes into a blob that is there.
func (j job) copyTo(next job) error {
	if j.tool.own != nil {
		return nil
	}
	from, err := os.OpenRoot(j.bundle())
	if err != nil {
		return err
	}
	defer from.Close() //nolint:errcheck // only read
	return fs.WalkDir(from.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		to := filepath.Join(next.bundle(), name)
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.MkdirAll(to, 0o755) //nolint:gosec // scratch of our own
		case strings.HasPrefix(name, "blobs/"):
			return os.Link(filepath.Join(j.bundle(), name), to) //nolint:gosec // scratch of our own
		}
		data, err := from.ReadFile(name)
		return errors.Join(err, os.WriteFile(to, data, 0o600)) //nolint:gosec // scratch of our own
	})
}

// leaveOneEntry leaves only the newest entry in a folder's index, for tools that
// push no other folders.
func (j job) leaveOneEntry() error {
	if !j.tool.oneEntry {
		return nil
	}
	name := filepath.Join(j.bundle(), ocispec.ImageIndexFile)
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var index ocispec.Index
	if err := json.Unmarshal(data, &index); err != nil {
		return err
	}
	index.Manifests = index.Manifests[max(0, len(index.Manifests)-1):]
	if data, err = json.Marshal(index); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o600)
}
