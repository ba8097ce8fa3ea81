//go:build linux

package model

import (
	"io/fs"
	"path/filepath"
	"syscall"
	"unsafe"
)

// watchFiles tells of every file that is made, renamed, removed or written below a
// folder, until it is closed.
func watchFiles(root string) (changes <-chan struct{}, end func(), err error) {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return nil, nil, err
	}
	stop, stopped, out := make(chan struct{}), make(chan struct{}), make(chan struct{}, 4096)
	w := &watcher{fd: fd, dirs: map[int32]string{}}
	w.add(root)
	go func() {
		defer close(stopped)
		w.run(stop, out)
	}()
	return out, func() { close(stop); <-stopped; _ = syscall.Close(fd) }, nil
}

type watcher struct {
	fd   int
	dirs map[int32]string
}

// add watches a folder and all below it.
func (w *watcher) add(root string) {
	_ = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // it is gone again
		}
		const what = syscall.IN_CREATE | syscall.IN_MOVED_TO | syscall.IN_MOVED_FROM | syscall.IN_DELETE | syscall.IN_MODIFY
		if id, err := syscall.InotifyAddWatch(w.fd, name, what|syscall.IN_ONLYDIR); err == nil {
			w.dirs[int32(id)] = name
		}
		return nil
	})
}

func (w *watcher) run(stop <-chan struct{}, out chan<- struct{}) {
	buf := make([]byte, 64<<10)
	for {
		select {
		case <-stop:
			return
		default:
		}
		n, err := syscall.Read(w.fd, buf)
		if err != nil || n <= 0 {
			poll(w.fd)
			continue
		}
		for at := 0; at+syscall.SizeofInotifyEvent <= n; {
			e := (*syscall.InotifyEvent)(unsafe.Pointer(&buf[at]))
			name := string(trimZeros(buf[at+syscall.SizeofInotifyEvent : at+syscall.SizeofInotifyEvent+int(e.Len)]))
			at += syscall.SizeofInotifyEvent + int(e.Len)
			if e.Mask&syscall.IN_ISDIR != 0 && e.Mask&(syscall.IN_CREATE|syscall.IN_MOVED_TO) != 0 {
				w.add(filepath.Join(w.dirs[e.Wd], name))
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}
}

// poll waits a moment for a file to be readable.
func poll(fd int) {
	var set syscall.FdSet
	set.Bits[fd/64] |= 1 << (uint(fd) % 64)
	_, _ = syscall.Select(fd+1, &set, nil, nil, &syscall.Timeval{Usec: 2000})
}

func trimZeros(p []byte) []byte {
	for len(p) > 0 && p[len(p)-1] == 0 {
		p = p[:len(p)-1]
	}
	return p
}
