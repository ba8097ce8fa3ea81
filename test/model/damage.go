//go:build linux

package model

import (
	"errors"
	"os"
	"strings"
)

// damages are the damages to a location between two commands:
//
//	flip     a byte of one of its files changes (also of a killed run's remains)
//	shorten  one of its files ends early
//	remove   one of its files is gone
//	lose     the registry loses a blob
var damages = map[string]func(w *world, s Step) error{
	"flip":    onFile(flip),
	"shorten": onFile(func(name string, size, n int64) error { return os.Truncate(name, n*7919%size) }),
	"remove":  onFile(func(name string, _, _ int64) error { return os.Remove(name) }),
	"lose":    lose,
}

// onFile damages one of the regular files of a location, or of those with an ending.
func onFile(damage func(name string, size, n int64) error) func(*world, Step) error {
	return func(w *world, s Step) error {
		files := map[string]int64{}
		for name, info := range tree(w.path("out")) {
			if info.Mode().IsRegular() && info.Size() > 0 && strings.HasPrefix(name, s.To.base()) && strings.HasSuffix(name, s.File) {
				files[name] = info.Size()
			}
		}
		if len(files) == 0 {
			return nil
		}
		name := sorted(files)[s.N%len(files)]
		return damage(w.path("out", name), files[name], int64(s.N))
	}
}

func flip(name string, size, n int64) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	data[n*7919%size] ^= 0xff
	f, err := os.OpenFile(name, os.O_WRONLY, 0) // in place: it stays the same file
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// lose removes a blob or manifest of a bundle from a registry, but not the root itself.
func lose(w *world, s Step) error {
	c := w.look(s.To)
	delete(c.good, c.root)
	digests := sorted(c.good)
	if len(digests) == 0 {
		return nil
	}
	digest := digests[s.N%len(digests)]
	for _, path := range []string{"/blobs/", "/manifests/"} {
		w.repository(s.To.repo()).ask("DELETE", path+digest)
	}
	return nil
}
