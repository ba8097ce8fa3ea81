package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/link"
)

// limits are what the machine can do, in bytes a second.
type limits struct{ sha256, hashed, disk, loopback, link float64 }

func measureLimits(dir string) (l limits, err error) {
	say("measuring the machine's limits")
	l.sha256 = sha256Speed()
	if l.disk, l.hashed, err = diskSpeed(dir); err != nil {
		return l, err
	}
	if l.loopback, err = loopbackSpeed(); err != nil {
		return l, err
	}
	l.link, err = linkSpeed()
	return l, err
}

// linkSpeed is what the relay of 1 Gbit/s lets through on this machine, over as many
// connections as vdo-bundle uses.
func linkSpeed() (float64, error) {
	const connections, each = 6, 50 << 20
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close() //nolint:errcheck // the end
	l, err := link.New(listener.Addr().String(), speeds["20ms"])
	if err != nil {
		return 0, err
	}
	defer l.Close() //nolint:errcheck // the end
	var group errgroup.Group
	began := time.Now()
	for range connections {
		group.Go(func() error {
			c, err := listener.Accept()
			if err != nil {
				return err
			}
			_, err = c.Write(make([]byte, each))
			return errors.Join(err, c.Close())
		})
		group.Go(func() error {
			c, err := net.Dial("tcp", l.Host)
			if err != nil {
				return err
			}
			_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 256<<10))
			return errors.Join(err, c.Close())
		})
	}
	err = group.Wait()
	return connections * each / time.Since(began).Seconds(), err
}

// sha256Speed hashes on all cores.
func sha256Speed() float64 {
	const each = 1 << 30
	var group errgroup.Group
	began := time.Now()
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() error {
			b, sum := make([]byte, 1<<20), sha256.New()
			for range each / len(b) {
				sum.Write(b)
			}
			sum.Sum(nil)
			return nil
		})
	}
	_ = group.Wait()
	return float64(each*runtime.GOMAXPROCS(0)) / time.Since(began).Seconds()
}

// diskSpeed writes a file to the last flush, then reads it from the cache and hashes
// it on all cores.
func diskSpeed(dir string) (written, hashed float64, err error) {
	const size = 1 << 30
	unix.Sync()
	f, err := os.Create(filepath.Join(dir, "speed"))
	if err != nil {
		return 0, 0, err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // scratch
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(i * 7)
	}
	began := time.Now()
	for range size / len(b) {
		if _, err := f.Write(b); err != nil {
			return 0, 0, errors.Join(err, f.Close())
		}
	}
	err = f.Sync()
	took := time.Since(began)
	if err == nil {
		hashed, err = hashSpeed(f, size)
	}
	return size / took.Seconds(), hashed, errors.Join(err, f.Close())
}

// hashSpeed reads a file and hashes it, a part on each core: what verifying is, and
// nothing else.
func hashSpeed(f io.ReaderAt, size int64) (float64, error) {
	parts := int64(runtime.GOMAXPROCS(0))
	var group errgroup.Group
	began := time.Now()
	for i := range parts {
		group.Go(func() error {
			from := io.NewSectionReader(f, i*size/parts, size/parts)
			_, err := io.CopyBuffer(struct{ io.Writer }{sha256.New()}, struct{ io.Reader }{from}, make([]byte, 256<<10))
			return err
		})
	}
	err := group.Wait()
	return float64(size) / time.Since(began).Seconds(), err
}

// loopbackSpeed sends over one connection.
func loopbackSpeed() (float64, error) {
	const size = 2 << 30
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close() //nolint:errcheck // the end
	var group errgroup.Group
	began := time.Now()
	group.Go(func() error {
		c, err := listener.Accept()
		if err != nil {
			return err
		}
		b := make([]byte, 256<<10)
		for sent := 0; sent < size && err == nil; sent += len(b) {
			_, err = c.Write(b)
		}
		return errors.Join(err, c.Close())
	})
	c, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return 0, err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 256<<10))
	return size / time.Since(began).Seconds(), errors.Join(err, group.Wait(), c.Close())
}

func printLimits(before, after limits) {
	fmt.Printf("\n| limit of the machine | before | after |\n|---|---|---|\n")
	for _, l := range []struct {
		name          string
		before, after float64
	}{
		{"sha256, all cores", before.sha256, after.sha256},
		{"sha256 of a file in the cache, all cores", before.hashed, after.hashed},
		{"disk, one file to the flush", before.disk, after.disk},
		{"loopback, one connection", before.loopback, after.loopback},
		{"the relay of 1 Gbit/s, six connections", before.link, after.link},
	} {
		fmt.Printf("| %s | %.0f MB/s | %.0f MB/s |\n", l.name, l.before/1e6, l.after/1e6)
	}
}
