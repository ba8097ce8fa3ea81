//go:build !linux

package archive

import (
	"errors"
	"os"
)

func freeSpace(string) (free int64, known bool) { return 0, false }

func mayWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".vdo-bundle-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func allocated(*os.File) int64 { return 0 }

func flushData(f *os.File) error { return f.Sync() }

func lockFile(*os.File) bool { return true }
