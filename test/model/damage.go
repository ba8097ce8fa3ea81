//go:build linux

package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// damages are what happens to a medium between two commands:
//
//	flip     a byte of one of its files is another (also of what a killed run left)
//	shorten  one of its files ends early
//	remove   one of its files is gone
//	link     the name FILE beside or in it is a link to a file that nobody names
//	fifo     the same, a FIFO
//	lose     the registry loses a blob
//	swell    many small manifests that share one large claim are attached to its root
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
	"swell": swell,
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

// swell attaches 200 manifests to the root of a folder, which share a claim of 4 MiB.
func swell(w *world, s Step) error {
	dir := w.path("out", place(s.To).base())
	c := readFolder(dir, w.site.keys)
	if !c.there {
		return nil
	}
	keep := func(mediaType string, data []byte) (ocispec.Descriptor, error) {
		d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
		return d, os.WriteFile(filepath.Join(dir, "blobs", "sha256", d.Digest.Encoded()), data, 0o600)
	}
	claim, err := keep("application/vnd.dev.cosign.simplesigning.v1+json", []byte(`{"padding":"`+strings.Repeat("x", 4<<20)+`"}`))
	if err != nil {
		return err
	}
	claim.Annotations = map[string]string{signatureAnnotation: "AAAA"}
	config, err := keep(ocispec.MediaTypeImageConfig, []byte("{}"))
	if err != nil {
		return err
	}
	var index ocispec.Index
	if err := json.Unmarshal(readRegular(filepath.Join(dir, "index.json")), &index); err != nil {
		return err
	}
	subject := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: digest.Digest(c.root), Size: int64(len(readRegular(filepath.Join(dir, "blobs", "sha256", strings.TrimPrefix(c.root, "sha256:")))))}
	for n := range 200 {
		m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: config, Layers: []ocispec.Descriptor{claim}, Subject: &subject, Annotations: map[string]string{"n": fmt.Sprint(n)}}
		m.SchemaVersion = 2
		data, err := json.Marshal(m)
		if err != nil {
			return err
		}
		d, err := keep(ocispec.MediaTypeImageManifest, data)
		if err != nil {
			return err
		}
		index.Manifests = append(index.Manifests, d)
	}
	data, err := json.Marshal(index)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "index.json"), data, 0o600)
}

func plant(w *world, s Step) error {
	repo, tag, _ := place(s.To).mirror()
	if err := w.site.plant(w.repository(repo), s.Bundle, tag); err != nil || s.Key == "" {
		return err
	}
	return w.site.sign(w.repository(repo), w.site.bundles[s.Bundle].root, s.Key)
}
