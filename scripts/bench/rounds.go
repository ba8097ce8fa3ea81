package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// row is a row of the tables, and the job that fills it: a command line of the tools, by its key there.
type row struct {
	name, line string
	first      string // command line that runs before, unmeasured, for the older version
	half       bool   // that one is killed after half of the bytes
	fresh      bool   // it pulls: its bundle is removed before, and the time includes a sync right after
	into       target
	newer      bool // of the set's newer version
	once       bool // only in the first round, for its memory
}

// target is the registry of a push.
type target int

const (
	emptyMirror target = iota + 1
	fullMirror         // that of the row before
)

var (
	pull     = row{name: "pull", line: "pull", fresh: true}
	push     = row{name: "push, empty registry", line: "push", into: emptyMirror}
	mostPull = row{name: "pull, most memory", line: "most pull", fresh: true, once: true}
	mostPush = row{name: "push, most memory", line: "most push", into: emptyMirror, once: true}
)

// rows are in the order of the tables and of the jobs: each uses the bundle that was pulled last.
var rows = []row{
	pull,
	{name: "resume a pull", line: "pull", first: "pull", half: true, fresh: true},
	push,
	{name: "push, full registry", line: "push", into: fullMirror},
	{name: "verify and push", line: "verified push", first: "sign", into: emptyMirror},
	{name: "delta, pull", line: "delta", fresh: true, newer: true},
	{name: "delta, push", line: "delta push", first: "push", into: emptyMirror, newer: true},
	{name: "verify", line: "verify"},
	mostPull,
	mostPush,
}

// runSet measures one set over all links.
func runSet(ctx context.Context, o options, name string, tools []tool) ([]*table, error) {
	say("making the set %s", name)
	s, err := makeSet(ctx, o, name)
	if err != nil {
		return nil, err
	}
	defer s.close() //nolint:errcheck // scratch
	if err := s.prepare(ctx, o, tools); err != nil {
		return nil, err
	}
	fmt.Printf("\n%s: %d images, %d layers, %s; the newer version has %d other layers, %s.\n", name,
		s.images, s.blobs, bytesText(s.bytes), s.newer.blobs, bytesText(s.newer.bytes))
	var tables []*table
	for _, over := range o.links {
		t, err := s.over(ctx, o, over, tools)
		if err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// prepare has each tool lock, if it does, and once pull and push, unmeasured. An error here recurs in the measurement.
func (s *set) prepare(ctx context.Context, o options, tools []tool) error {
	for _, tool := range tools {
		say("%s: %s warms up", s.name, tool.name)
		j := &job{set: s, tool: tool, o: o, from: s.upstream, host: s.upstream.Host}
		for _, r := range []row{{line: "keygen"}, {line: "lock"}, {line: "lock", newer: true}, pull, push} {
			if tool.lines[r.line] == "" {
				continue
			}
			if _, err := j.do(ctx, r); err != nil {
				say("  %s: %v", tool.name, err)
				break
			}
		}
		if err := errors.Join(ctx.Err(), j.end()); err != nil {
			return err
		}
	}
	return nil
}

// over measures a set over one link: in each round every tool does all of its jobs, and each round begins with
// another tool.
func (s *set) over(ctx context.Context, o options, over string, tools []tool) (*table, error) {
	way, from := ways[over], s.upstream
	if way.tls {
		from = s.secure
	}
	s.tls, s.newer.tls = way.tls, way.tls
	host, end, err := through(from.Host, way.Options)
	if err != nil {
		return nil, err
	}
	defer end()
	t := &table{set: s, over: over, cells: map[cell]*results{}}
	for round := range repeat {
		for i := range tools {
			j := &job{set: s, tool: tools[(round+i)%len(tools)], o: o, way: way, from: from, host: host}
			say("%s over %s, round %d: %s", s.name, over, round+1, j.tool.name)
			for _, r := range rows {
				if round == 0 || !r.once {
					t.measure(ctx, j, r)
				}
			}
			if err := errors.Join(ctx.Err(), j.end()); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// measure has a tool do a row's job. It does not repeat one that failed in an earlier round.
func (t *table) measure(ctx context.Context, j *job, r row) {
	if t.at(r, j.tool.name).failed || j.tool.lines[r.line] == "" {
		return
	}
	s, err := j.do(ctx, r)
	if err != nil {
		say("  %s: %s: %v", j.tool.name, r.name, err)
		t.at(r, j.tool.name).failed = true
		j.closeMirror()
		return
	}
	t.add(r, j.tool.name, s)
}

// job is the work of one tool with one set.
type job struct {
	set    *set
	tool   tool
	o      options
	way    way
	from   *registry.Registry // source or target of its tool, as host
	host   string
	base   string // bundle of the older version
	mirror *mirror
}

// do does the job of a row and returns what it costs.
func (j *job) do(ctx context.Context, r row) (sample, error) {
	before := *j
	if r.into == emptyMirror {
		if err := j.openMirror(); err != nil {
			return sample{}, err
		}
	}
	if r.into != 0 {
		if j.mirror == nil {
			return sample{}, errors.New("no registry is full")
		}
		before.from, before.host = j.mirror.Registry, j.mirror.host
	}
	it := before
	if r.newer {
		it.set, it.base = j.set.newer, j.bundle()
	}
	if r.fresh {
		if err := it.remove(); err != nil {
			return sample{}, err
		}
	}
	if r.first != "" {
		if _, err := before.process(ctx, r.first, r.half); err != nil {
			return sample{}, err
		}
	}
	return it.process(ctx, r.line, false)
}

// bundle returns the location of the tool's pulled bundle.
func (j job) bundle() string { return filepath.Join(j.set.dir, "of-"+j.tool.name+j.tool.ext) }

func (j job) remove() error {
	name := j.bundle()
	return errors.Join(os.RemoveAll(name), os.RemoveAll(name+".partial"), os.RemoveAll(name+".journal"))
}

// end removes what the job left.
func (j *job) end() error {
	j.closeMirror()
	next := *j
	next.set = j.set.newer
	return errors.Join(j.remove(), next.remove())
}
