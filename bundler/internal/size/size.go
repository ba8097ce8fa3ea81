// Package size formats and parses byte counts as people write them: 650MB (millions), 16MiB (of
// 1024 by 1024), 1048576.
package size

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/dustin/go-humanize"
)

// Format formats n bytes with at most three digits: 12 MB, 4.7 GB.
func Format(n int64) string { return humanize.Bytes(uint64(max(n, 0))) }

// Parse parses a number of bytes, from 0 to the largest int64.
func Parse(s string) (int64, error) {
	n, err := humanize.ParseBytes(s)
	if err != nil || n > math.MaxInt64 || strings.Contains(s, ",") { // 4,7GB would be 47 GB
		return 0, errors.New("not a size such as 4GB, 16MiB or 1048576")
	}
	return int64(n), nil
}

// Bytes is a flag for a number of bytes: 4GB, 650MiB, 4294967295.
type Bytes int64

// Type returns the placeholder of the flag.
func (*Bytes) Type() string { return "SIZE" }

// String returns the number.
func (b *Bytes) String() string { return fmt.Sprint(int64(*b)) }

// Set parses a number with a unit.
func (b *Bytes) Set(s string) error {
	n, err := Parse(s)
	if err != nil {
		return err
	}
	*b = Bytes(n)
	return nil
}
