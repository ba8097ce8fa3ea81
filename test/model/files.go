//go:build linux

package model

import (
	"io/fs"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// watchFiles tells of every file that is made, renamed, removed or written below a
// folder, until it is closed.
func watchFiles(root string) (changes <-chan struct{}, end func(), err error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, nil, err
	}
	add := func(root string) {
		_ = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				_ = w.Add(name)
			}
			return nil // it may be gone again
		})
	}
	add(root)
	out := make(chan struct{}, 4096)
	go func() {
		for {
			select {
			case <-w.Errors: // some were lost, or it is closed
			case e, open := <-w.Events:
				if !open {
					return
				}
				if e.Has(fsnotify.Create) {
					add(e.Name)
				}
				if e.Op != fsnotify.Chmod && len(out) < cap(out) {
					out <- struct{}{}
				}
			}
		}
	}()
	return out, func() { _ = w.Close() }, nil
}
