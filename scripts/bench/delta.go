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
)

// newer pulls the version after the one that is there, and pushes it into a registry
// that has that one.
func (j job) newer(ctx context.Context) {
	next := j
	next.set = j.set.newer
	pulled := j.measure(rowDeltaPull, func() (sample, error) {
		if err := errors.Join(next.remove(), j.copyTo(next)); err != nil {
			return sample{}, err
		}
		line := j.tool.pull
		if j.tool.own != nil {
			line = j.tool.own.delta
		}
		return j.run(ctx, j.from, j.tool.args(line, next.set, j.host, next.bundle(), j.bundle()))
	})
	defer next.remove() //nolint:errcheck // scratch
	if !pulled {
		return
	}
	j.measure(rowDeltaPush, func() (s sample, err error) {
		if err := next.leaveOneEntry(); err != nil {
			return s, err
		}
		err = j.withMirror(func(m job) error {
			if _, err := m.run(ctx, nil, m.args(j.tool.push)); err != nil {
				return err
			}
			m.set = next.set
			s, err = m.run(ctx, m.from, m.args(j.tool.push))
			return err
		})
		return s, err
	})
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
