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

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
)

// journal records the progress of each blob of a partial archive. It is text, with one fact a line;
// each line ends with its CRC-32. Readers stop at the first truncated or broken line.
//
//	vdo-archive-journal/2 BUNDLE CRC
//	at HEX PLACE OFFSET SUM CRC
//
// BUNDLE identifies what is written; see [identity]. An "at" line says that the first OFFSET bytes of
// a blob are on disk, from byte PLACE of the archive on. SUM is their sha256. The blob is
// complete if SUM is HEX. The last line of a blob counts; an OFFSET of 0 withdraws earlier lines. A
// resuming writer hashes those bytes before it relies on them.
//
// The journal is also the lock of its archive: see archiveLock.
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
	maxJournalLine = 4096
)

// progress is the content of an "at" line.
type progress struct {
	location int64
	offset   int64
	sum      [sha256.Size]byte // of the first offset bytes
}

// whole reports whether the journal has the blob complete at its place.
func (p progress) whole(e entry) bool {
	return p.offset == e.size && p.location == e.dataOffset() && hex.EncodeToString(p.sum[:]) == e.d.Digest.Encoded()
}

func sealed(line string) string {
	return fmt.Sprintf("%s %08x\n", line, crc32.ChecksumIEEE([]byte(line)))
}

// unsealed returns a line without its CRC, if that is right.
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

// noted is the content of a journal.
type noted struct {
	referrers string // identity of what is written; "" without a valid first line
	at        map[string]progress
	sound     int64 // length of the valid lines, in bytes
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

// take reads one line and reports whether it is valid.
func (n *noted) take(body string) bool {
	if n.referrers == "" {
		referrers, ok := strings.CutPrefix(body, journalMagic+" ")
		n.referrers = referrers
		return ok && referrers != ""
	}
	blob, p, ok := parseProgress(body)
	if ok {
		n.at[blob] = p
	}
	return ok
}

// wholeLines is bufio.ScanLines without an unterminated last line.
func wholeLines(data []byte, _ bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	return 0, nil, nil
}

// startJournal writes lines in the background. One flush serves many blobs, and writes each disk block once.
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

// flushPause is the time between two flushes: the most work that a power cut may cost.
const flushPause = 100 * time.Millisecond

// note records progress; the line is written after the next flush of the data.
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

// end writes pending lines. No note may follow.
func (j *journal) end() error {
	if !j.ended {
		j.ended = true
		close(j.stop)
		<-j.stopped
		j.flush()
	}
	return atomicfile.Fault("write", j.f.Name(), errors.Join(j.err, j.f.Sync()))
}
