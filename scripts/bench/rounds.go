package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// runSet measures one set over all links.
func runSet(ctx context.Context, o options, name string, tools []tool) ([]*table, error) {
	say("making the set %s", name)
	s, err := makeSet(ctx, o, name)
	if err != nil {
		return nil, err
	}
	defer s.close() //nolint:errcheck // scratch
	if err := errors.Join(s.lock(ctx, o, tools), s.newer.lock(ctx, o, tools)); err != nil {
		return nil, err
	}
	if err := s.warm(ctx, o, tools); err != nil {
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

// lock creates the locks for our own tools, and a key.
func (s *set) lock(ctx context.Context, o options, tools []tool) error {
	for _, t := range tools {
		if t.own == nil {
			continue
		}
		j := job{set: s, tool: t, o: o, from: s.upstream, host: s.upstream.Host}
		lines := []string{t.own.lock}
		if t.name == ourName {
			lines = append(lines, "keygen -o DIR/bench")
		}
		for _, line := range lines {
			if _, err := j.run(ctx, j.args(line)); err != nil {
				return err
			}
		}
	}
	return nil
}

// warm has each tool pull and push once, unmeasured. An error here recurs in the measurement.
func (s *set) warm(ctx context.Context, o options, tools []tool) error {
	for _, tool := range tools {
		say("%s: %s warms up", s.name, tool.name)
		j := job{set: s, tool: tool, o: o, from: s.upstream, host: s.upstream.Host}
		_, err := j.run(ctx, j.args(tool.pull))
		if err == nil {
			_, err = j.pushed(ctx, tool.push)
		}
		if err != nil {
			say("  %s: %v", tool.name, err)
		}
		if err := errors.Join(ctx.Err(), j.remove()); err != nil {
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
			j := job{set: s, tool: tools[(round+i)%len(tools)], o: o, table: t, way: way, from: from, host: host}
			say("%s over %s, round %d: %s", s.name, over, round+1, j.tool.name)
			j.all(ctx)
			if round == 0 {
				j.most(ctx)
			}
			if err := errors.Join(ctx.Err(), j.remove()); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// job is the work of one tool with one set.
type job struct {
	set   *set
	tool  tool
	o     options
	table *table
	way   way
	from  *registry.Registry // source or target of its tool, as host
	host  string
}

// args returns a command line for the job's set and the location of its bundle.
func (j job) args(line string) []string { return j.tool.args(line, j.set, j.host, j.bundle(), "") }

func (j job) run(ctx context.Context, args []string) (sample, error) {
	return j.process(ctx, args, nil)
}

// measure runs a row of the table once, and reports whether it has figures. It does not repeat a row that failed in
// an earlier round.
func (j job) measure(row string, run func() (sample, error)) bool {
	if j.table.at(row, j.tool).failed {
		return false
	}
	s, err := run()
	if err != nil {
		say("  %s: %s: %v", j.tool.name, row, err)
		j.table.at(row, j.tool).failed = true
		return false
	}
	j.table.add(row, j.tool, s)
	return true
}

// bundle returns the location of the tool's pulled bundle.
func (j job) bundle() string { return filepath.Join(j.set.dir, "of-"+j.tool.name+j.tool.ext) }

func (j job) remove() error {
	name := j.bundle()
	return errors.Join(os.RemoveAll(name), os.RemoveAll(name+".partial"), os.RemoveAll(name+".journal"))
}

// pulled removes the bundle and pulls again.
func (j job) pulled(ctx context.Context, args []string) (sample, error) {
	if err := j.remove(); err != nil {
		return sample{}, err
	}
	return j.run(ctx, args)
}

// pushed pushes into an empty registry.
func (j job) pushed(ctx context.Context, line string) (sample, error) {
	return j.withMirror(func(m job) (sample, error) { return m.run(ctx, m.args(line)) })
}

// all does each job once: it pushes the bundle that it pulled last.
func (j job) all(ctx context.Context) {
	j.resume(ctx)
	if !j.measure(rowPull, func() (sample, error) { return j.pulled(ctx, j.args(j.tool.pull)) }) {
		return
	}
	j.measure(rowPush, func() (sample, error) {
		return j.withMirror(func(m job) (sample, error) {
			push := func() (sample, error) { return m.run(ctx, m.args(j.tool.push)) }
			empty, err := push()
			if err == nil {
				j.measure(rowPushAgain, push)
			}
			return empty, err
		})
	})
	if j.tool.own != nil {
		j.newer(ctx)
		j.signed(ctx)
	}
}

// resume kills a pull after half of the bytes, and measures the next run.
func (j job) resume(ctx context.Context) {
	half := func() bool {
		wire, _ := traffic(j.from)
		return wire > j.set.bytes/2
	}
	j.measure(rowResume, func() (sample, error) {
		if err := j.remove(); err != nil {
			return sample{}, err
		}
		args := j.args(j.tool.pull)
		if _, err := j.process(ctx, args, half); err != nil {
			return sample{}, err
		}
		return j.run(ctx, args)
	})
}

// newer pulls the newer version into a file of its own. It pushes that into a registry that has the older one.
func (j job) newer(ctx context.Context) {
	next := j
	next.set = j.set.newer
	defer next.remove() //nolint:errcheck // scratch
	if !j.measure(rowDeltaPull, func() (sample, error) {
		return next.pulled(ctx, j.tool.args(j.tool.own.delta, next.set, j.host, next.bundle(), j.bundle()))
	}) {
		return
	}
	j.measure(rowDeltaPush, func() (sample, error) {
		return j.withMirror(func(m job) (sample, error) {
			if s, err := m.run(ctx, m.args(j.tool.push)); err != nil {
				return s, err
			}
			m.set = next.set
			return m.run(ctx, m.args(j.tool.push))
		})
	})
}

// signed signs the pulled bundle, and measures its verification, alone and before a push.
func (j job) signed(ctx context.Context) {
	own := j.tool.own
	if _, err := j.run(ctx, j.args(own.sign)); err != nil {
		j.table.at(rowVerify, j.tool).failed = true
		say("  %s: sign: %v", j.tool.name, err)
		return
	}
	j.measure(rowVerify, func() (sample, error) { return j.run(ctx, j.args(own.verify)) })
	j.measure(rowVerifiedPush, func() (sample, error) { return j.pushed(ctx, own.verifiedPush) })
}

// most pulls and pushes with the flags that need most memory.
func (j job) most(ctx context.Context) {
	own := j.tool.own
	if own == nil || j.table.at(rowPull, j.tool).failed {
		return
	}
	j.measure(rowMostPush, func() (sample, error) { return j.pushed(ctx, own.mostPush) })
	j.measure(rowMostPull, func() (sample, error) { return j.pulled(ctx, j.args(own.mostPull)) })
}
