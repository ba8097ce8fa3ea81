package mover

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// reading reads an item from one origin, and remembers whether that failed: a target's
// Put returns what is wrong with either.
type reading struct {
	ctx      context.Context //nolint:containedctx // of the one Put that it serves
	item     item
	from     Origin
	position *position
	failed   atomic.Bool // the target may read in a goroutine of its own
}

func (r *reading) open(offset int64) (io.ReadCloser, error) {
	r.position.set(offset)
	r.failed.Store(false)
	rc, err := r.from.From.FetchFrom(r.ctx, r.item.descriptor, offset)
	if err != nil {
		r.failed.Store(true)
		return nil, err
	}
	return &counted{rc, r}, nil
}

// position is how far an item is; it reports what changes.
type position struct {
	progress run.Progress
	at       int64
}

func (p *position) set(to int64) {
	if to != p.at {
		p.progress.Moved(to - p.at)
	}
	p.at = to
}

// counted reports what is read through it.
type counted struct {
	io.ReadCloser
	of *reading
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.of.position.set(c.of.position.at + int64(n))
	if err != nil && !errors.Is(err, io.EOF) {
		c.of.failed.Store(true)
	}
	return n, err
}
