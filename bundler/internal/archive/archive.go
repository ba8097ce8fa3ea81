// Package archive keeps bundles on disk: in one file, or in a directory.
//
// # The file
//
// A file is one uncompressed tar whose root is an OCI image layout. The bundle determines every
// byte: two archives of one graph are equal.
//
//	oci-layout                {"imageLayoutVersion":"1.0.0"}
//	index.json                an OCI index, then padding
//	blobs/, blobs/sha256/     folders, with mode 0755
//	blobs/sha256/<hex> …      what the root reaches, in the order of bundle.Graph.Order:
//	                          manifests; configs and the contents; layers
//	blobs/sha256/<hex> …      what attachments add; later signatures come last
//	two blocks of zeros       the end; nothing follows
//
// Every header is a POSIX ustar header with mode 0644, owner 0 without a name, modification time 0
// and device 0; see [Layout]. An entry of 8 GiB or more has a PAX header before it that gives its
// size. Its ustar header gives the size in base 256, so that both kinds of readers find the next
// entry. Zeros fill up data to a block of 512 bytes. Archives of earlier versions have no folders.
//
// index.json is JSON without insignificant space, its keys in the order of the OCI specification.
// First come the root and the images as bundle.Graph.Names returns them, then the attachments
// sorted by tag and digest. A delta (see package bundle) also has its annotations. The padding
// consists of spaces and, as the last byte, a newline. The entry's size is fixed on creation: the
// JSON without attachments, 1 KiB for each manifest that the root reaches, and 16 KiB. It is more if
// the JSON with attachments leaves less than these 16 KiB. It is at most 8 MiB, rounded up to a block.
// So attachments seldom move blobs. Readers accept any number of blocks: earlier versions wrote others.
//
// # Signing
//
// A complete file never changes. Signing writes a new file beside it, as a pull with that signature
// would have, and replaces it. The padding is for earlier versions, which appended signatures and
// overwrote index.json; they left entries that nothing names. Signing a directory reads all of it,
// writes the new blobs, and index.json last.
//
// # Reading
//
// Readers use an io.ReaderAt and unpack nothing. They find entries by digest only. They also read
// archives of other tools: any order, directories, other headers, Docker's media types. They refuse
// links, devices, sparse files, names that climb, duplicate entries, and more than 131072 entries.
// [Archive.CheckLayout] demands the exact form above, so that no byte can change unnoticed.
//
// A reader takes no lock: an open file stays the same while others sign or replace it, a folder does not.
//
// # Writing
//
// [FileWriter] first lays out the whole file, then fills it in any order, many blobs at a time. It
// hashes each blob while it arrives, and writes it once, to its final place in FILE.partial.
// FILE.journal records the progress; each line is written after the bytes that it covers were
// flushed. A restarted writer hashes the recorded bytes and writes everything else again. The
// journal belongs to the bundle's root, so a pull with other signatures resumes too. FILE appears
// complete, or not at all.
//
// FILE.journal is also the lock for all changes of FILE and its parts by pull, sign, split and
// repair. A second process fails at once. A directory is locked itself. On a file system without
// locks, a signature still never replaces one that its writer has not read.
//
// Writers never follow a prepared name out of the directory; see package atomicfile.
//
// # Parts
//
// A file may be in parts: byte ranges of the tar, optionally with parity shards. A parts file lists
// them with their sha256; see package parts. [FileWriter] fills FILE.001.partial and so on in
// the same way, so that no byte is written twice and no disk must hold the whole. FILE.parts appears
// last. [OpenFile] opens the parts and reports each that is missing or has another size.
// [Archive.Damage] reports those whose bytes changed. [Split] fills parts from an archive, like a
// pull of its bundle, and resumes a killed run. If it cannot finish, it removes what it began.
// Parts cannot be signed; join them first.
//
// # The directory
//
// [OpenDir] and [DirWriter] do the same for an OCI image layout in a directory. Each blob is flushed
// under another name before it gets its own; index.json comes last. Directories of other tools are
// accepted. Their index.json may lack names and may name the root freely. It must not name anything
// outside the bundle and its attachments, nor give an image the upstream name of another.
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
	layoutName   = ocispec.ImageLayoutFile
	layoutData   = `{"imageLayoutVersion":"1.0.0"}`
	indexName    = ocispec.ImageIndexFile
	blobPrefix   = "blobs/sha256/"
	maxIndexSize = 8 << 20 // bytes of an index.json
	maxNames     = 65536   // entries of an index.json
)

// Options are for CreateFile and CreateDir; the zero value never destroys anything.
type Options struct {
	Replace bool // replace an existing target once the new one is complete
	Restart bool // delete what an interrupted run of another bundle left

	VolumeSize int64 // size of each part in bytes; 0: one file
	Recovery   int   // number of parity shards
}

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
