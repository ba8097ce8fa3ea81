// Package size reads and writes numbers of bytes as people do: 650MB (millions), 16MiB
// (of 1024 by 1024), 1048576.
package size

import (
	"errors"
	"math"

	"github.com/dustin/go-humanize"
)

// Format writes n bytes with three digits at most: 12 MB, 4.7 GB.
func Format(n int64) string { return humanize.Bytes(uint64(max(n, 0))) }

// Parse reads a number of bytes, from 0 to the largest int64.
func Parse(s string) (int64, error) {
	n, err := humanize.ParseBytes(s)
	if err != nil || n > math.MaxInt64 {
		return 0, errors.New("not a size such as 4GB, 16MiB or 1048576")
	}
	return int64(n), nil
}
