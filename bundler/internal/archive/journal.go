package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
)

// journal records the progress of each blob of a partial archive. It is JSON values. The first one
// is the format and what is written; see [identity]. Each other one is a [progress], and the last of a blob counts.
// Readers stop at the first truncated or broken value.
//
// The journal is also the lock of its archive: see archiveLock.
type journal struct {
	f    *os.File
	data *storage // flushed before a line is written

	mu      sync.Mutex
	pending map[string]progress // blob → newest progress
	stop    chan struct{}
	stopped chan struct{}
	ended   bool
	err     error
}

// journalFormat identifies the format.
const journalFormat = "vdo-archive-journal/3"

// journalHead is the first value of a journal.
type journalHead struct {
	Format string `json:"journal"`
	Bundle string `json:"bundle"`
}

// progress says that the first bytes of a blob are on disk. A resuming writer hashes them before it relies on them.
type progress struct {
	Blob   string `json:"blob"` // hex digits of its digest
	Offset int64  `json:"bytes"`
	Sum    []byte `json:"sha256"` // of these bytes
}

// noted is the content of a journal.
type noted struct {
	bundle string // the identity of what is written; "" without a valid head
	at     map[string]progress
	sound  int64 // length of the valid values, in bytes
}

func readJournal(r io.Reader) noted {
	n := noted{at: map[string]progress{}}
	values := json.NewDecoder(r)
	var head journalHead
	if values.Decode(&head) != nil || head.Format != journalFormat {
		return n
	}
	n.bundle, n.sound = head.Bundle, values.InputOffset()
	for {
		var p progress
		if values.Decode(&p) != nil {
			return n
		}
		n.at[p.Blob], n.sound = p, values.InputOffset()
	}
}

// lines returns values as a journal has them.
func lines[T any](values ...T) []byte {
	var out bytes.Buffer
	for _, v := range values {
		_ = json.NewEncoder(&out).Encode(v) //nolint:errchkjson // of text and numbers it does not fail
	}
	return out.Bytes()
}

// startJournal writes lines in the background. One flush serves many blobs, and writes each disk block once.
func startJournal(f *os.File, data *storage) *journal {
	j := &journal{f: f, data: data, pending: map[string]progress{}, stop: make(chan struct{}),
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
func (j *journal) note(p progress) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending[p.Blob] = p
	return j.err
}

func (j *journal) flush() {
	j.mu.Lock()
	batch, err := j.pending, j.err
	j.pending = map[string]progress{}
	j.mu.Unlock()
	if err != nil || len(batch) == 0 {
		return
	}
	if err = j.data.flush(); err == nil {
		_, err = j.f.Write(lines(slices.Collect(maps.Values(batch))...))
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
