package archive

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/atomicfile"
)

// A journal remembers how far each blob of a partial archive has come. It is text,
// a line a fact, each line ending with its own CRC-32; reading stops at the first
// line that is cut off or broken.
//
//	vdo-archive-journal/2 BUNDLE CRC
//	at HEX PLACE OFFSET SUM CRC
//
// BUNDLE says what is written; see [identity]. An at line says that the first OFFSET
// bytes of a blob are in place, from byte PLACE of the archive on, and on the disk, and
// that SUM is their sha256: the blob is whole where that is HEX. The last line of a
// blob counts; an OFFSET of 0 takes back what was said. Whoever goes on hashes those
// bytes again before it relies on them. Earlier versions end with
// a line "named RECOVERY" once all is in place, which says nothing here.
//
// The journal is the lock of its archive as well: see archiveLock.
type journal struct {
	f    *os.File
	data *storage // flushed before a line is written

	mu      sync.Mutex
	pending map[string]string // blob → newest line
	stop    chan struct{}
	stopped chan struct{}
	ended   bool
	err     error
}

const (
	journalMagic   = "vdo-archive-journal/2"
	namedLine      = "named "
	maxJournalLine = 4096
)

// progress is what an at line says.
type progress struct {
	location int64
	offset   int64
	sum      [sha256.Size]byte // of the first offset bytes
}

// whole tells whether a blob was noted as whole, at its place.
func (p progress) whole(e entry) bool {
	return p.offset == e.size && p.location == e.dataOffset() && hex.EncodeToString(p.sum[:]) == e.d.Digest.Encoded()
}

func sealed(line string) string {
	return fmt.Sprintf("%s %08x\n", line, crc32.ChecksumIEEE([]byte(line)))
}

// unsealed returns a line without its CRC, where that is right.
func unsealed(line string) (string, bool) {
	i := strings.LastIndexByte(line, ' ')
	if i < 0 {
		return "", false
	}
	return line[:i], sealed(line[:i]) == line+"\n"
}

func (p progress) line(blob string) string {
	return sealed(fmt.Sprintf("at %s %d %d %x", blob, p.location, p.offset, p.sum))
}

func parseProgress(body string) (blob string, p progress, ok bool) {
	fields := strings.Fields(body)
	if len(fields) != 5 || fields[0] != "at" || len(fields[4]) != 2*len(p.sum) {
		return "", p, false
	}
	location, err1 := strconv.ParseInt(fields[2], 10, 64)
	offset, err2 := strconv.ParseInt(fields[3], 10, 64)
	_, err3 := hex.Decode(p.sum[:], []byte(fields[4]))
	p.location, p.offset = location, offset
	return fields[1], p, err1 == nil && err2 == nil && err3 == nil && location >= 0 && offset >= 0
}

// noted is what a journal says.
type noted struct {
	referrers string // what is written; "" where there is no sound first line
	at        map[string]progress
	sound     int64 // bytes of the journal, up to the first line that is not right
}

func readJournal(r io.Reader) noted {
	n := noted{at: map[string]progress{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, maxJournalLine), maxJournalLine)
	lines.Split(wholeLines)
	for lines.Scan() {
		line := lines.Text()
		body, ok := unsealed(line)
		if !ok || !n.take(body) {
			break
		}
		n.sound += int64(len(line)) + 1
	}
	return n
}

// take takes up one line.
func (n *noted) take(body string) bool {
	if n.referrers == "" {
		referrers, ok := strings.CutPrefix(body, journalMagic+" ")
		n.referrers = referrers
		return ok && referrers != ""
	}
	if strings.HasPrefix(body, namedLine) {
		return true
	}
	blob, p, ok := parseProgress(body)
	if ok {
		n.at[blob] = p
	}
	return ok
}

// wholeLines is bufio.ScanLines without a last line that has no end.
func wholeLines(data []byte, _ bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	return 0, nil, nil
}

// startJournal writes lines from now on, in the background: what comes within a pause waits
// for the next flush, so that one serves many blobs and writes each block of the disk once.
func startJournal(f *os.File, data *storage) *journal {
	j := &journal{f: f, data: data, pending: map[string]string{}, stop: make(chan struct{}),
		stopped: make(chan struct{})}
	go func() {
		defer close(j.stopped)
		pause := time.NewTicker(flushPause)
		defer pause.Stop()
		for {
			select {
			case <-j.stop:
				return
			case <-pause.C:
				j.flush()
			}
		}
	}()
	return j
}

// flushPause is between two flushes: as much work as a power cut may cost.
const flushPause = 100 * time.Millisecond

// note remembers progress; it becomes a line after the next flush of the data.
func (j *journal) note(hex string, p progress) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending[hex] = p.line(hex)
	return j.err
}

func (j *journal) flush() {
	j.mu.Lock()
	batch, err := j.pending, j.err
	j.pending = map[string]string{}
	j.mu.Unlock()
	if err != nil || len(batch) == 0 {
		return
	}
	if err = j.data.flush(); err == nil {
		_, err = io.WriteString(j.f, strings.Join(slices.Collect(maps.Values(batch)), ""))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.err = atomicfile.Fault("write", j.f.Name(), err)
}

// end writes what is pending. Nothing may note any more.
func (j *journal) end() error {
	if !j.ended {
		j.ended = true
		close(j.stop)
		<-j.stopped
		j.flush()
	}
	return atomicfile.Fault("write", j.f.Name(), errors.Join(j.err, j.f.Sync()))
}
