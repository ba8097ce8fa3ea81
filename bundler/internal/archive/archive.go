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

// Options are for CreateFile and CreateDir; the zero value never destroys anything.
type Options struct {
	Replace bool // replace an existing target once the new one is complete
	Restart bool // delete what an interrupted run of another bundle left

	VolumeSize int64 // size of each part in bytes; 0: one file
	Recovery   int   // number of parity shards
}
