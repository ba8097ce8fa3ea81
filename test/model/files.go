//go:build linux

package model

import (
	"io/fs"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// watchFiles reports every file that is created, renamed, removed or written below a directory, until end is called.
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
			case <-w.Errors: // some events were dropped, or the watcher is closed
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
