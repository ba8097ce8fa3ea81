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

// limitNames are what [measureLimits] measures.
var limitNames = []string{
	"sha256, all cores", "sha256 of a file in the cache, all cores", "disk, one file to the flush",
	"loopback, one connection", "the relay of 1 Gbit/s, six connections",
}

// measureLimits returns what the machine can do, in bytes a second.
func measureLimits(dir string) ([]float64, error) {
	say("measuring the machine's limits")
	sum, err := hashSpeed(zeros{}, int64(runtime.GOMAXPROCS(0))<<30)
	disk, hashed, diskErr := diskSpeed(dir)
	loopback, loopbackErr := netSpeed(1, 2<<30, link.Options{})
	relay, relayErr := netSpeed(6, 50<<20, far) // as many connections as vdo-bundle uses
	return []float64{sum, hashed, disk, loopback, relay}, errors.Join(err, diskErr, loopbackErr, relayErr)
}

// zeros is an endless file.
type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) { return len(p), nil }

// hashSpeed reads a file and hashes it, a part on each core: what verifying is, and
// nothing else.
func hashSpeed(f io.ReaderAt, size int64) (float64, error) {
	parts := int64(runtime.GOMAXPROCS(0))
	var group errgroup.Group
	began := time.Now()
	for i := range parts {
		group.Go(func() error { return copyAll(sha256.New(), io.NewSectionReader(f, i*size/parts, size/parts)) })
	}
	err := group.Wait()
	return float64(size) / time.Since(began).Seconds(), err
}

// copyAll copies by way of a buffer, without the short cuts of either side.
func copyAll(w io.Writer, r io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, 256<<10))
	return err
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
	defer f.Close()           //nolint:errcheck // scratch
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(i * 7)
	}
	began := time.Now()
	for range size / len(b) {
		if _, err := f.Write(b); err != nil {
			return 0, 0, err
		}
	}
	err = f.Sync()
	took := time.Since(began)
	if err == nil {
		hashed, err = hashSpeed(f, size)
	}
	return size / took.Seconds(), hashed, err
}

// netSpeed sends so much over each of some connections of a link.
func netSpeed(connections int, each int64, speed link.Options) (float64, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close() //nolint:errcheck // the end
	host, end, err := through(listener.Addr().String(), speed)
	if err != nil {
		return 0, err
	}
	defer end()
	var group errgroup.Group
	began := time.Now()
	for range connections {
		group.Go(func() error {
			c, err := listener.Accept()
			if err != nil {
				return err
			}
			return errors.Join(copyAll(c, io.NewSectionReader(zeros{}, 0, each)), c.Close())
		})
		group.Go(func() error {
			c, err := net.Dial("tcp", host)
			if err != nil {
				return err
			}
			return errors.Join(copyAll(io.Discard, c), c.Close())
		})
	}
	err = group.Wait()
	return float64(connections) * float64(each) / time.Since(began).Seconds(), err
}

func printLimits(before, after []float64) {
	fmt.Printf("\n| limit of the machine | before | after |\n|---|---|---|\n")
	for i, name := range limitNames {
		fmt.Printf("| %s | %.0f MB/s | %.0f MB/s |\n", name, before[i]/1e6, after[i]/1e6)
	}
}
