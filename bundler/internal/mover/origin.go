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

// Origin is a source of a blob.
type Origin struct {
	Host string // the queue; "" for memory, and if hosts do not matter
	From bundle.Fetcher
	// Repository is the registry's repository to mount from; zero if it is in no registry.
	Repository image.Reference
}

// From returns a source as an origin.
func From(s medium.Source) Origin { return Origin{From: s, Repository: s.Can().Repository} }

// Origins are the origins of each digest, in the order to try.
type Origins map[digest.Digest][]Origin

// InMemory returns the origins of what a graph carries.
func InMemory(g *bundle.Graph) Origins {
	o := Origins{}
	held := g.InMemory()
	for d := range held {
		o[d] = []Origin{{From: held}}
	}
	return o
}

// Add adds an origin of a digest, after its others.
func (o Origins) Add(d digest.Digest, from Origin) { o[d] = append(o[d], from) }

// reading reads an item from one origin and records its failure, as Put does not tell it from the target's.
type reading struct {
	ctx      context.Context //nolint:containedctx // of the one Put that it serves
	item     item
	from     Origin
	position *position
	failed   atomic.Bool // the target may read in its own goroutine
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

// position is the progress of an item; it reports every change.
type position struct {
	progress *run.Progress
	at       atomic.Int64 // a target may still read in its own goroutine when another attempt starts
}

func (p *position) set(to int64) {
	if was := p.at.Swap(to); was != to {
		p.progress.Moved(to - was)
	}
}

// counted reports the bytes read through it.
type counted struct {
	io.ReadCloser
	of *reading
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.of.position.set(c.of.position.at.Load() + int64(n))
	if err != nil && !errors.Is(err, io.EOF) {
		c.of.failed.Store(true)
	}
	return n, err
}
