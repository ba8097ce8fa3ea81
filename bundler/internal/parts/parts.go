// Package parts is the format of a parts file: the list of the parts of a split archive, for media
// of any size.
//
// # The parts
//
// The archive FILE of SIZE bytes is split into plain byte ranges of VOLUME bytes, the last one
// shorter. They are named FILE.001, FILE.002, … (three digits, at most 999). Joined, they are the
// archive again:
//
//	cat drivers.tar.[0-9]* > drivers.tar
//
// Parity shards FILE.p001, FILE.p002, … may follow, each as long as the longest part. Byte i of all
// parts (zero beyond a part's end) and byte i of the parity shards form one codeword of a systematic
// Reed-Solomon code. The code is over GF(2^8) with the polynomial x^8+x^4+x^3+x^2+1. Its matrix is
// the Vandermonde matrix made systematic, as github.com/klauspost/reedsolomon builds it by default. As
// many of all files as there are parts suffice to rebuild the others. With parity shards, parts and
// shards are at most 256 together.
//
// # The parts file
//
// FILE.parts is beside them. It is text, each line ended by one newline:
//
//	# vdo-bundle parts 1
//	# file drivers.tar
//	# size 5000000000
//	# volume 2000000000
//	# recovery 1
//	HEX  drivers.tar.001
//	HEX  drivers.tar.002
//	HEX  drivers.tar.003
//	HEX  drivers.tar.p001
//	# sum HEX
//
// Numbers are decimal without leading zeros. HEX of a part is the sha256 of its bytes. HEX of the
// last line is the sha256 of all lines before it. To sha256sum, lines that begin with # are
// comments, so that `sha256sum -c drivers.tar.parts` checks the parts without this program. Each list
// has exactly one valid form, and readers refuse all others.
//
// # Trust
//
// A parts file proves only that no accident happened; it is not signed. The signature covers the
// digest of the bundle's root inside the archive and, by digests, everything else. Verifying the
// bundle therefore verifies every byte of every part, except parity shards.
package parts

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Suffix follows the archive's name in the name of the parts file.
const Suffix = ".parts"

// MaxSize and the others are the limits of the format.
const (
	MaxSize    = 1 << 20 // bytes of a parts file
	MaxParts   = 999     // without parity shards
	MaxShards  = 256     // parts and parity shards, if there are shards
	MinVolume  = 512     // bytes
	MaxArchive = 1 << 46 // bytes
	maxName    = 200     // bytes of FILE
)

// Magic is the first line of a parts file.
const Magic = "# vdo-bundle parts 1"

// Sum is the sha256 of a part.
type Sum [sha256.Size]byte

// String returns the sum in hex.
func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// List is a parts file. Only [New] and [Parse] return one.
type List struct {
	File     string // name of the archive, without a directory
	Size     int64  // of the archive, in bytes
	Volume   int64  // size of each part but the last, in bytes
	Recovery int    // number of parity shards
	Sums     []Sum  // of the parts, then of the parity shards
}

// New plans the parts of an archive; the sums are zero.
func New(file string, size, volume int64, recovery int) (*List, error) {
	l := &List{File: file, Size: size, Volume: volume, Recovery: recovery}
	if err := l.check(); err != nil {
		return nil, err
	}
	l.Sums = make([]Sum, l.All())
	return l, nil
}

func (l *List) check() error {
	bad := func(hint, format string, args ...any) error {
		return &fault.Error{Reason: fault.InvalidInput, Op: "split", Subject: l.File, Hint: hint, Err: fmt.Errorf(format, args...)}
	}
	badName := l.File == "" || l.File == "." || l.File == ".." || len(l.File) > maxName || !utf8.ValidString(l.File) || l.File != filepath.Base(l.File) ||
		strings.ContainsFunc(l.File, func(r rune) bool { return !unicode.IsPrint(r) || r == '\\' || r == '/' })
	n := l.Count()
	switch {
	case badName:
		return bad("choose a plain file name", "%.100q is not a name for an archive in parts", l.File)
	case l.Size < 1 || l.Size > MaxArchive:
		return bad("", "its size of %d bytes cannot be", l.Size)
	case l.Volume < MinVolume || l.Volume > MaxArchive:
		return bad("choose a larger size", "parts of %d bytes cannot be; the smallest are %d", l.Volume, MinVolume)
	case n > MaxParts:
		return bad("choose a larger size", "it would have %d parts, more than %d", n, MaxParts)
	case l.Recovery < 0 || (l.Recovery > 0 && n+int64(l.Recovery) > MaxShards):
		return bad("choose a larger size or fewer parity shards", "%d parts and %d parity shards are more than %d together", n, l.Recovery, MaxShards)
	}
	return nil
}

// Count returns the number of parts, without parity shards.
func (l *List) Count() int64 {
	if l.Volume < 1 || l.Size < 1 {
		return 0
	}
	return (l.Size-1)/l.Volume + 1
}

// All returns the number of parts and parity shards.
func (l *List) All() int { return int(l.Count()) + l.Recovery }

// Name returns the name of part i, from 0; parity shards follow the parts.
func (l *List) Name(i int) string {
	if n := int(l.Count()); i >= n {
		return fmt.Sprintf("%s.p%03d", l.File, i-n+1)
	}
	return fmt.Sprintf("%s.%03d", l.File, i+1)
}

// Names returns the names of the parts, then of the parity shards.
func (l *List) Names() []string {
	out := make([]string, l.All())
	for i := range out {
		out[i] = l.Name(i)
	}
	return out
}

// PartSize returns the size of part i, in bytes.
func (l *List) PartSize(i int) int64 {
	switch n := int(l.Count()); {
	case i >= n, i < n-1:
		return min(l.Volume, l.Size)
	default:
		return l.Size - int64(n-1)*l.Volume
	}
}

// Text returns the parts file.
func (l *List) Text() []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s\n# file %s\n# size %d\n# volume %d\n# recovery %d\n", Magic, l.File, l.Size, l.Volume, l.Recovery)
	for i, s := range l.Sums {
		fmt.Fprintf(&out, "%s  %s\n", s, l.Name(i))
	}
	fmt.Fprintf(&out, "# sum %s\n", Sum(sha256.Sum256(out.Bytes())))
	return out.Bytes()
}

// Parse parses a parts file; name is for messages.
func Parse(name string, data []byte) (*List, error) {
	l, err := parse(data)
	if err != nil {
		return nil, fault.Errorf(fault.Corrupt, "read parts file", name,
			"copy it again from where it was made; without it, `cat` of the parts in order is the archive", "%w", err)
	}
	return l, nil
}

func parse(data []byte) (*List, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("it has more than %d bytes", MaxSize)
	}
	if bytes.Contains(data, []byte("\r\n")) {
		return nil, errors.New("its line ends have become CRLF: a transfer took it for text")
	}
	lines := strings.Split(string(data), "\n")
	if lines[0] != Magic {
		return nil, fmt.Errorf("it does not begin with %q", Magic)
	}
	if len(lines) < 6 {
		return nil, errors.New("it is cut off")
	}
	value := func(line int, key string) string { return strings.TrimPrefix(lines[line], "# "+key+" ") }
	number := func(line int, key string) int64 {
		n, err := strconv.ParseInt(value(line, key), 10, 64)
		if err != nil {
			return -1 // invalid in every list
		}
		return n
	}
	l := &List{File: value(1, "file"), Size: number(2, "size"), Volume: number(3, "volume")}
	l.Recovery = int(min(number(4, "recovery"), MaxShards))
	if err := l.check(); err != nil {
		return nil, errors.Unwrap(err)
	}
	rest := lines[5:]
	if len(rest) < l.All() {
		return nil, fmt.Errorf("it lists %d parts of %d", len(rest), l.All())
	}
	for _, line := range rest[:l.All()] {
		var s Sum
		if n, err := hex.Decode(s[:], []byte(line[:min(len(line), 2*len(s))])); err != nil || n != len(s) {
			return nil, fmt.Errorf("the line %.100q has no sha256", line)
		}
		l.Sums = append(l.Sums, s)
	}
	if !bytes.Equal(l.Text(), data) {
		return nil, errors.New("it is cut off, or was changed: the last line does not fit the others, or they are not those of a parts file")
	}
	return l, nil
}
