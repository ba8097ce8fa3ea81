package archive

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A journal remembers how far each blob of a partial archive has come. It is text,
// a line a fact, each line ending with its own CRC-32; reading stops at the first
// line that is cut off or broken.
//
//	vdo-archive-journal/1 LAYOUT CRC
//	at HEX OFFSET TAIL STATE CRC
//
// LAYOUT is the identity of the layout. An at line says that the first OFFSET
// bytes of a blob are in place and on the disk, that the CRC-32 of the last 4 KiB
// of them is TAIL, and that the sha256 over them has the STATE (base64; "-" when
// the blob is whole and has its digest). The last line of a blob counts; an OFFSET
// of 0 takes back what was said.
type journal struct {
	f    *os.File
	data storage // flushed before a line is written

	mu      sync.Mutex
	pending map[string]string // blob → newest line
	wake    chan struct{}
	stop    chan struct{}
	stopped chan struct{}
	err     error
}

const (
	journalMagic   = "vdo-archive-journal/1"
	maxJournalLine = 4096
	tailSize       = 4096
)

// progress is what an at line says.
type progress struct {
	offset int64
	tail   uint32
	state  []byte // nil when whole
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

func (p progress) line(hex string) string {
	state := "-"
	if p.state != nil {
		state = base64.StdEncoding.EncodeToString(p.state)
	}
	return sealed(fmt.Sprintf("at %s %d %08x %s", hex, p.offset, p.tail, state))
}

func parseProgress(line string) (hex string, p progress, ok bool) {
	body, ok := unsealed(line)
	fields := strings.Fields(body)
	if !ok || len(fields) != 5 || fields[0] != "at" {
		return "", p, false
	}
	offset, err1 := strconv.ParseInt(fields[2], 10, 64)
	tail, err2 := strconv.ParseUint(fields[3], 16, 32)
	if fields[4] != "-" {
		var err error
		if p.state, err = base64.StdEncoding.DecodeString(fields[4]); err != nil {
			return "", p, false
		}
	}
	p.offset, p.tail = offset, uint32(tail)
	return fields[1], p, err1 == nil && err2 == nil && offset >= 0
}

// readJournal returns the layout that a journal is about, how far each blob is,
// and how many bytes of the journal are sound.
func readJournal(r io.Reader) (layout string, at map[string]progress, sound int64) {
	at = map[string]progress{}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, maxJournalLine), maxJournalLine)
	lines.Split(wholeLines)
	for lines.Scan() {
		line := lines.Text()
		if layout == "" {
			head, ok := unsealed(line)
			rest, magic := strings.CutPrefix(head, journalMagic+" ")
			if !ok || !magic {
				return "", map[string]progress{}, 0
			}
			layout = rest
		} else {
			hex, p, ok := parseProgress(line)
			if !ok {
				break
			}
			at[hex] = p
		}
		sound += int64(len(line)) + 1
	}
	return layout, at, sound
}

// wholeLines is bufio.ScanLines without a last line that has no end.
func wholeLines(data []byte, _ bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	return 0, nil, nil
}

// errOtherJournal is a journal that is missing, broken, or about another layout.
var errOtherJournal = errors.New("there is no journal of this bundle")

// openJournal opens the journal of a layout and reads it.
func openJournal(path, layout string) (*os.File, map[string]progress, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, errOtherJournal
	}
	if err != nil {
		return nil, nil, err
	}
	about, at, sound := readJournal(f)
	if about != layout {
		return nil, nil, errors.Join(errOtherJournal, f.Close())
	}
	if _, err = f.Seek(sound, io.SeekStart); err == nil {
		err = f.Truncate(sound)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, at, nil
}

// startJournal writes lines from now on, in the background: what comes while a
// flush runs, or within a pause after it, waits for the next one, so that one flush
// serves many blobs and writes each block of the disk once.
func startJournal(f *os.File, data storage) *journal {
	j := &journal{f: f, data: data, pending: map[string]string{}, wake: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{})}
	go j.run()
	return j
}

// flushPause is between two flushes: as much work as a power cut may cost.
const flushPause = 100 * time.Millisecond

func (j *journal) run() {
	defer close(j.stopped)
	for {
		select {
		case <-j.stop:
			return
		case <-j.wake:
			j.flush()
		}
		select {
		case <-j.stop:
			return
		case <-time.After(flushPause):
		}
	}
}

// note remembers progress; it becomes a line after the next flush of the data.
func (j *journal) note(hex string, p progress) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending[hex] = p.line(hex)
	select {
	case j.wake <- struct{}{}:
	default:
	}
	return j.err
}

func (j *journal) flush() {
	j.mu.Lock()
	batch := j.pending
	j.pending = map[string]string{}
	failed := j.err != nil
	j.mu.Unlock()
	if failed || len(batch) == 0 {
		return
	}
	err := flushStorage(j.data)
	if err == nil {
		var out strings.Builder
		for _, line := range batch {
			out.WriteString(line)
		}
		_, err = io.WriteString(j.f, out.String())
	}
	if err != nil {
		j.mu.Lock()
		j.err = storageFault("write", j.f.Name(), err)
		j.mu.Unlock()
	}
}

// close writes what is pending and closes the journal. Nothing may note any more.
func (j *journal) close() error {
	close(j.stop)
	<-j.stopped
	j.flush()
	err := j.f.Sync()
	return errors.Join(j.err, storageFault("write", j.f.Name(), errors.Join(err, j.f.Close())))
}
