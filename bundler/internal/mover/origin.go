package mover

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"github.com/opencontainers/go-digest"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// Origin is a place that a blob can be read from.
type Origin struct {
	Host string // whose queue it is in; "" for what is in memory, and where hosts do not count
	From bundle.Fetcher
	// Repository is where a target in the same registry can mount it from; zero where it
	// is in no registry.
	Repository image.Reference
}

// From is a source as an origin.
func From(s medium.Source) Origin { return Origin{From: s, Repository: s.Can().Repository} }

// Origins say of each digest where it can be read from, in the order in which that is
// tried.
type Origins map[digest.Digest][]Origin

// InMemory are the origins of what a graph carries itself.
func InMemory(g *bundle.Graph) Origins {
	o := Origins{}
	held := g.InMemory()
	for d := range held {
		o[d] = []Origin{{From: held}}
	}
	return o
}

// Add adds an origin of a digest, after those that it has.
func (o Origins) Add(d digest.Digest, from Origin) { o[d] = append(o[d], from) }

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
	rc, err := r.from.From.Fetch(r.ctx, r.item.descriptor, offset)
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
