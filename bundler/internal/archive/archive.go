// Package archive keeps bundles on disk: in one file, or in a folder.
//
// # The file
//
// A file is one uncompressed tar whose root is an OCI image layout. Its bytes are
// fixed by the bundle: two archives of one graph are the same.
//
//	oci-layout                {"imageLayoutVersion":"1.0.0"}
//	index.json                an OCI index, then slack
//	blobs/sha256/<hex> …      what the root reaches, in the order of bundle.Graph.Order:
//	                          manifests; configs and the contents; layers
//	blobs/sha256/<hex> …      what attachments add; what was signed later comes last
//	two blocks of zeros       the end; nothing follows
//
// Every header is a POSIX ustar header with mode 0644, owner 0 without a name,
// modification time 0 and device 0; see [Layout]. An entry of 8 GiB or more has a
// PAX header before it that gives its size, and its ustar header gives the size in
// base 256, so that readers of either kind find the next entry. There are no
// entries for folders. Data is followed by zeros up to a block of 512 bytes.
//
// index.json is JSON without insignificant space, its keys in the order of the OCI
// specification: first the root and the images as bundle.Graph.Names gives them,
// then the attachments sorted by tag and digest; of a delta (see package bundle)
// also its annotations. The slack after it are spaces
// and, as the last byte, a newline: the entry has as many bytes as the JSON of its
// creation, 16 KiB and 1 KiB for each manifest that the root reaches (not more than 8 MiB),
// rounded up to a block. Readers take any number of blocks: earlier versions wrote 16 KiB.
//
// # Signing
//
// A file is not changed once it has its name: who signs writes it again beside itself, as a pull
// with that signature would have written it, and it takes its place. The slack is for earlier
// versions, which appended signatures and wrote index.json again in its place; of what they replaced
// entries are left that nothing names. Of a folder all is read, the new blobs are written, and
// index.json last.
//
// # Reading
//
// Readers use an io.ReaderAt and unpack nothing. Entries are found by digest only.
// Archives that other tools wrote are read as well: any order, folders, other
// headers, Docker's media types. Refused are links, devices, sparse files, names
// that climb, an entry twice, more than 131072 entries. [Archive.CheckLayout] demands
// the form above to the byte, so that no byte of an archive can change unseen.
//
// A reader takes no lock: what is open stays as it is, whoever signs or replaces it.
//
// # Writing
//
// [FileWriter] lays the whole file out first and fills it in any order, many blobs
// at a time: hashed once while they arrive and written once, to their final place
// in FILE.partial. FILE.journal remembers what is there; a line is written only after
// the bytes that it speaks of were flushed. A writer that is started again hashes what
// the journal speaks of, and writes everything else again. The journal is about the bundle's
// root, so a pull that is signed again goes on as well. FILE appears complete, or not at all.
//
// FILE.journal is the lock too, of all that changes FILE or its parts: who pulls, signs,
// splits or repairs holds it, and another one is told so at once. A folder is locked itself. Where
// a file system has no locks, a signature is still never replaced that was not read.
//
// Nothing is written through a name that someone else has prepared; see package atomicfile.
//
// # Parts
//
// A file may be in parts: byte ranges of the tar, listed with their sha256 in a
// parts file, perhaps with recovery parts; see package parts. [FileWriter] fills
// FILE.001.partial and so on in the same way, so that no byte is written twice and
// no medium has to hold the whole; FILE.parts appears last. [OpenFile] takes the
// parts as they are, and names each that is missing or has another size;
// [Archive.Damage] names those whose bytes are not what they were. [Split] fills them from an
// archive, as a pull of its bundle does, and goes on where a run was killed; what it began itself and cannot
// end, it removes. Parts are not signed: whoever has to, joins them. Earlier versions added
// signatures in place, and had "changing" in the parts file meanwhile.
//
// # The folder
//
// [OpenDir] and [DirWriter] do the same for an OCI image layout in a folder: each blob
// is flushed under another name before it gets its own, index.json comes last. A
// folder that another tool wrote is taken too: its index.json may lack names and call
// the root as it likes, but names nothing that is not of the bundle or about a part of
// it, and no image by an upstream name that is another's.
package archive

import (
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	layoutName   = ocispec.ImageLayoutFile
	layoutData   = `{"imageLayoutVersion":"1.0.0"}`
	indexName    = ocispec.ImageIndexFile
	blobPrefix   = "blobs/sha256/"
	maxIndexSize = 8 << 20 // bytes of an index.json
	maxNames     = 65536   // entries of an index.json
)

// Options of CreateFile and CreateDir; the zero value never destroys anything.
type Options struct {
	Replace bool // replace a target that is there, once the new one is complete
	Restart bool // drop what an interrupted run left there of another bundle

	VolumeSize int64 // bytes of each part of a file; 0: one file
	Recovery   int   // recovery parts beside them
}
