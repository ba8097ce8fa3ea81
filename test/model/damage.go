//go:build linux

package model

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// damages are what happens to a medium between two commands:
//
//	flip     a byte of one of its files is another (also of what a killed run left)
//	shorten  one of its files ends early
//	remove   one of its files is gone
//	link     the name FILE beside or in it is a link to a file that nobody names
//	fifo     the same, a FIFO
//	lose     the registry loses a blob
//	plant    the tag of a registry moves to a bundle, signed by Key
var damages = map[string]func(w *world, s Step) error{
	"flip":    flip,
	"shorten": shorten,
	"remove":  remove,
	"link":    func(w *world, s Step) error { return w.trap(s, link) },
	"fifo": func(w *world, s Step) error {
		return w.trap(s, func(name string) error { return syscall.Mkfifo(name, 0o600) })
	},
	"lose":  lose,
	"plant": plant,
}

// pick chooses one of the regular files of a medium, or of those with an ending.
func (w *world) pick(s Step) (string, int64) {
	var names []string
	for _, name := range sorted(tree(w.path("out"))) {
		info, err := os.Lstat(w.path("out", name))
		if err == nil && info.Mode().IsRegular() && info.Size() > 0 && strings.HasPrefix(name, place(s.To).base()) && strings.HasSuffix(name, s.File) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", 0
	}
	name := w.path("out", names[s.N%len(names)])
	info, err := os.Lstat(name)
	if err != nil {
		return "", 0
	}
	return name, info.Size()
}

func flip(w *world, s Step) error {
	name, size := w.pick(s)
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	at := int64(s.N) * 7919 % size
	one := make([]byte, 1)
	if _, err := f.ReadAt(one, at); err != nil {
		return err
	}
	one[0] ^= 0xff
	_, err = f.WriteAt(one, at)
	return err
}

func shorten(w *world, s Step) error {
	name, size := w.pick(s)
	if name == "" {
		return nil
	}
	return os.Truncate(name, int64(s.N)*7919%size)
}

func remove(w *world, s Step) error {
	name, _ := w.pick(s)
	if name == "" {
		return nil
	}
	return os.Remove(name)
}

// trap puts something in the place of a file that the program may be about to write.
func (w *world) trap(s Step, put func(name string) error) error {
	name := w.path("out", place(s.To).base()+s.File)
	if place(s.To).dir() {
		name = w.path("out", place(s.To).base(), s.File)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if _, err := os.Lstat(name); err == nil {
		w.model.damaged[place(s.To)] = true
	}
	return errors.Join(os.RemoveAll(name), put(name))
}

func link(name string) error {
	return os.Symlink(filepath.Join(name[:strings.LastIndex(name, "/out/")], "canary", canaries[0]), name)
}

// lose removes a blob or manifest of a bundle from a registry, but not the root itself.
func lose(w *world, s Step) error {
	repo, _, _ := place(s.To).mirror()
	c := w.look(place(s.To))
	delete(c.good, c.root)
	digests := sorted(c.good)
	if len(digests) == 0 {
		return nil
	}
	digest := digests[s.N%len(digests)]
	for _, path := range []string{"/blobs/", "/manifests/"} {
		w.repository(repo).get("DELETE", path+digest, nil)
	}
	return nil
}

func plant(w *world, s Step) error {
	repo, tag, _ := place(s.To).mirror()
	if err := w.site.plant(w.repository(repo), s.Bundle, tag); err != nil || s.Key == "" {
		return err
	}
	return w.site.sign(w.repository(repo), w.site.bundles[s.Bundle].root, s.Key)
}
