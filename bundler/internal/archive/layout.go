package archive

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

const (
	blockSize = 512
	endSize   = 2 * blockSize // two blocks of zeros
	slack     = 16 << 10      // least padding after the JSON of a new index.json, in bytes
	slackEach = 1 << 10       // more padding for each manifest, which two forms of signatures may name
	maxOctal  = 1<<33 - 1     // the largest size in eleven octal digits
)

// Layout is the position of every byte of an archive, known before the first one arrives.
type Layout struct {
	entries []entry
	size    int64
	bare    bool // without folders
}

// entry is one file of the tar. data is nil if it must be fetched, and header is nil if the entry was read.
type entry struct {
	name   string
	d      ocispec.Descriptor // zero for oci-layout and index.json
	header []byte
	head   int64 // bytes of the header
	offset int64 // of the header
	size   int64 // of the data
	data   []byte
}

func (e entry) dataOffset() int64 { return e.offset + e.head }
func (e entry) end() int64        { return e.dataOffset() + padded(e.size) }

// padded rounds up to whole blocks.
func padded(n int64) int64 { return (n + blockSize - 1) / blockSize * blockSize }

// NewLayout returns the layout of a graph.
func NewLayout(g *bundle.Graph) (*Layout, error) {
	text := indexJSON(with(g.Names, g.Attachments...), g.Base)
	if len(text)+slack > maxIndexSize {
		return nil, fault.Errorf(fault.InvalidInput, "lay out bundle", g.Root.Digest.String(),
			"make several smaller bundles", "it has too many names for one index.json")
	}
	bare := indexJSON(g.Names, g.Base)
	// The room is for attachments, so that a pull with others finds its blobs in the same places.
	room := min(max(len(bare)+slackEach*len(g.Manifests), len(text)), maxIndexSize-slack)
	l := newLayout(spaced(text, padded(int64(room+slack))), false)
	for _, d := range g.Order() {
		l.add(d)
	}
	return l, nil
}

func newLayout(index []byte, bare bool) *Layout {
	l := &Layout{size: endSize, bare: bare}
	l.append(entry{name: layoutName, size: int64(len(layoutData)), data: []byte(layoutData)})
	l.append(entry{name: indexName, size: int64(len(index)), data: index})
	return l
}

func (l *Layout) add(d ocispec.Descriptor) {
	l.append(entry{name: blobName(d), d: d, size: d.Size, data: d.Data})
}

// folders are in the header of the first blob. Archives of earlier versions have none.
var folders = []string{"blobs", "blobs/sha256"}

func blobName(d ocispec.Descriptor) string { return blobPrefix + d.Digest.Encoded() }

func (l *Layout) append(e entry) {
	e.header, e.offset = header(e.name, e.size), l.size-endSize
	if len(l.entries) == 2 && !l.bare { // tools such as skopeo make folders only as root
		e.header = slices.Concat(ustar(folders[0]+"/", 0, '5'), ustar(folders[1]+"/", 0, '5'), e.header)
	}
	e.head = int64(len(e.header))
	l.entries = append(l.entries, e)
	l.size = e.end() + endSize
}

// spaced extends JSON to size with spaces and a newline.
func spaced(text []byte, size int64) []byte {
	out := bytes.Repeat([]byte{' '}, int(size))
	copy(out, text)
	out[size-1] = '\n'
	return out
}

// header returns the bytes before the data of an entry.
func header(name string, size int64) []byte {
	if size <= maxOctal {
		return ustar(name, size, '0')
	}
	digits := strconv.FormatInt(size, 10)
	record := fmt.Sprintf("%d size=%s\n", len("NN size=\n")+len(digits), digits) // its length counts itself
	out := ustar("PaxHeaders.0/"+name, int64(len(record)), 'x')
	out = append(out, record...)
	out = append(out, make([]byte, padded(int64(len(record)))-int64(len(record)))...)
	return append(out, ustar(name, size, '0')...)
}

// ustar returns one header block of POSIX.1-1988 (pax, "ustar Interchange Format").
func ustar(name string, size int64, kind byte) []byte {
	b := make([]byte, blockSize)
	copy(b[0:100], name)
	copy(b[100:], "0000644\x000000000\x000000000\x00")
	if size <= maxOctal {
		copy(b[124:], fmt.Sprintf("%011o\x00", size))
	} else {
		for i := 0; i < 8; i++ {
			b[135-i] = byte(size >> (8 * i))
		}
		b[124] = 0x80 // base 256
	}
	copy(b[136:], "00000000000\x00")
	copy(b[148:], "        ") // the checksum counts its own field as spaces
	b[156] = kind
	if kind == '5' { // a folder
		copy(b[100:], "0000755")
	}
	copy(b[257:], "ustar\x0000")
	copy(b[329:], "0000000\x000000000\x00")
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

// bytes returns an entry that carries its data, padded to whole blocks.
func (e entry) bytes() []byte {
	return slices.Concat(e.header, e.data, make([]byte, padded(e.size)-e.size))
}

// fetched returns the blobs that the layout does not carry.
func (l *Layout) fetched() (out []ocispec.Descriptor) {
	for _, e := range l.entries {
		if e.data == nil {
			out = append(out, e.d)
		}
	}
	return out
}
