package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/link"
)

// runSet measures one set over all links.
func runSet(ctx context.Context, o options, name string, tools []tool) ([]*table, error) {
	say("making the set %s", name)
	s, err := makeSet(ctx, o, name)
	if err != nil {
		return nil, err
	}
	defer s.close() //nolint:errcheck // scratch
	if err := errors.Join(s.lock(ctx, tools), s.newer.lock(ctx, tools)); err != nil {
		return nil, err
	}
	if err := touch(filepath.Join(o.registryDir, "touch"), 2*s.bytes); err != nil {
		return nil, err
	}
	if err := s.warm(ctx, o, tools); err != nil {
		return nil, err
	}
	var tables []*table
	for _, over := range o.links {
		t, err := s.over(ctx, o, over, tools)
		if err != nil {
			return nil, err
		}
		t.print()
		tables = append(tables, t)
	}
	return tables, nil
}

// lock makes the locks that our own tools pull.
func (s *set) lock(ctx context.Context, tools []tool) error {
	for _, t := range tools {
		if t.own == nil {
			continue
		}
		if _, err := process(ctx, nil, t.path, t.own.lock(s), nil); err != nil {
			return err
		}
	}
	return nil
}

// warm has each tool pull and push once, unmeasured. What fails here fails again where
// it is measured.
func (s *set) warm(ctx context.Context, o options, tools []tool) error {
	for _, tool := range tools {
		say("%s: %s warms up", s.name, tool.name)
		j := job{set: s, tool: tool, o: o}
		_, err := process(ctx, s.upstream, tool.path, tool.pull(s, s.upstream.Host, j.bundle()), nil)
		if err == nil {
			err = j.withMirror(link.Options{}, func(m mirror) error {
				_, err := process(ctx, m.reg, tool.path, tool.push(s, m.host, j.bundle()), nil)
				return err
			})
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

// over measures a set over one link: in each round every tool does all of its jobs, and
// each round begins with another tool.
func (s *set) over(ctx context.Context, o options, over string, tools []tool) (*table, error) {
	speed := speeds[over]
	host, end, err := through(s.upstream.Host, speed)
	if err != nil {
		return nil, err
	}
	defer end()
	t := newTable(s, over)
	for round := range o.repeat {
		for i := range tools {
			j := job{set: s, tool: tools[(round+i)%len(tools)], o: o, table: t}
			say("%s over %s, round %d: %s", s.name, over, round+1, j.tool.name)
			j.all(ctx, host, speed)
			if round == 0 {
				j.most(ctx, host, speed)
			}
			if err := errors.Join(ctx.Err(), j.remove()); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// job is what one tool does with one set.
type job struct {
	set   *set
	tool  tool
	o     options
	table *table
}

// measure runs a row of the table once, and tells whether there are figures. What has
// failed in an earlier round is not tried again.
func (j job) measure(row string, run func() (sample, error)) bool {
	if j.table.failed(row, j.tool) {
		return false
	}
	s, err := run()
	if err != nil {
		say("  %s: %s: %v", j.tool.name, row, err)
		j.table.fail(row, j.tool, err)
		return false
	}
	j.table.add(row, j.tool, s)
	return true
}

// bundle is where the tool keeps what it pulled.
func (j job) bundle() string { return filepath.Join(j.set.dir, "of-"+j.tool.name+j.tool.ext) }

func (j job) remove() error { return remove(j.bundle()) }

func remove(name string) error {
	return errors.Join(os.RemoveAll(name), os.RemoveAll(name+".partial"), os.RemoveAll(name+".journal"))
}

// all does each job once: what is pushed is what was pulled last.
func (j job) all(ctx context.Context, host string, speed link.Options) {
	j.resume(ctx, host)
	pulled := j.measure(rowPull, func() (sample, error) {
		if err := j.remove(); err != nil {
			return sample{}, err
		}
		return process(ctx, j.set.upstream, j.tool.path, j.tool.pull(j.set, host, j.bundle()), nil)
	})
	if !pulled {
		return
	}
	j.push(ctx, speed)
	j.newer(ctx, host, speed)
	if j.tool.own != nil {
		j.signed(ctx, speed)
	}
}

// resume kills a pull when half of the bytes have come, and measures the next run.
func (j job) resume(ctx context.Context, host string) {
	half := func() bool {
		wire, _ := traffic(j.set.upstream)
		return wire > j.set.bytes/2
	}
	j.measure(rowResume, func() (sample, error) {
		if err := j.remove(); err != nil {
			return sample{}, err
		}
		args := j.tool.pull(j.set, host, j.bundle())
		if _, err := process(ctx, j.set.upstream, j.tool.path, args, half); err != nil {
			return sample{}, err
		}
		return process(ctx, j.set.upstream, j.tool.path, args, nil)
	})
}

// push pushes into an empty registry, and then into the same again.
func (j job) push(ctx context.Context, speed link.Options) {
	j.measure(rowPush, func() (empty sample, err error) {
		err = j.withMirror(speed, func(m mirror) error {
			args := j.tool.push(j.set, m.host, j.bundle())
			if empty, err = process(ctx, m.reg, j.tool.path, args, nil); err != nil {
				return err
			}
			j.measure(rowPushAgain, func() (sample, error) { return process(ctx, m.reg, j.tool.path, args, nil) })
			return nil
		})
		return empty, err
	})
}

// signed signs what was pulled, and measures its verification, alone and before a push.
func (j job) signed(ctx context.Context, speed link.Options) {
	own := j.tool.own
	if _, err := process(ctx, nil, j.tool.path, own.sign(j.set, j.bundle()), nil); err != nil {
		j.table.fail(rowVerify, j.tool, err)
		say("  %s: sign: %v", j.tool.name, err)
		return
	}
	j.measure(rowVerify, func() (sample, error) {
		return process(ctx, nil, j.tool.path, own.verify(j.set, j.bundle()), nil)
	})
	j.measure(rowVerifiedPush, func() (s sample, err error) {
		err = j.withMirror(speed, func(m mirror) error {
			s, err = process(ctx, m.reg, j.tool.path, own.verifiedPush(j.set, m.host, j.bundle()), nil)
			return err
		})
		return s, err
	})
}

// most pulls and pushes with the flags that take most memory.
func (j job) most(ctx context.Context, host string, speed link.Options) {
	if j.tool.own == nil || j.table.failed(rowPull, j.tool) {
		return
	}
	with := func(args []string, more ...[]string) []string {
		for _, m := range more {
			args = append(args, m...)
		}
		return args
	}
	j.measure(rowMostPush, func() (s sample, err error) {
		err = j.withMirror(speed, func(m mirror) error {
			args := with(j.tool.push(j.set, m.host, j.bundle()), j.tool.own.most, j.tool.own.pushMost)
			s, err = process(ctx, m.reg, j.tool.path, args, nil)
			return err
		})
		return s, err
	})
	j.measure(rowMostPull, func() (sample, error) {
		if err := j.remove(); err != nil {
			return sample{}, err
		}
		return process(ctx, j.set.upstream, j.tool.path, with(j.tool.pull(j.set, host, j.bundle()), j.tool.own.most, j.tool.own.pullMost), nil)
	})
}

// touch writes a file of a size and removes it: a virtual machine is given its memory
// when that is written for the first time, which is slow, and would be counted against
// the first tool.
func touch(name string, size int64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	b := make([]byte, 1<<20)
	for left := size; left > 0 && err == nil; left -= int64(len(b)) {
		_, err = f.Write(b)
	}
	return errors.Join(err, f.Close(), os.Remove(name))
}
