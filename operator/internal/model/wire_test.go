package model

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// wire is the operator's way to the API server. It notes every write that the API
// server has taken, and lets things happen at a request of a pass.
type wire struct {
	mu       sync.Mutex
	next     http.RoundTripper
	requests int // of this pass
	writes   []write
	armed    []armed
	dead     bool                               // the operator was killed: nothing gets through any more
	life     int                                // writes that an operator lives for; 0: no end
	lived    int                                // of those
	last     write                              // what an operator has died after
	spared   bool                               // the operator has begun with the same, and lived on
	deaths   int                                // by that
	repeated int                                // writes that were spared
	kill     func()                             // ends the pass under way
	refuse   func(*http.Request) *http.Response // nil: it goes through
}

// write is a request that changed something.
type write struct{ method, path string }

func (w write) String() string { return w.method + " " + w.path }

// armed happens at a request of the next pass.
type armed struct {
	at   int
	what string // fails, lost, killed, or event
	do   func()
}

var errWire = errors.New("connection reset by peer")

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	what, do, refused := w.met(req)
	switch {
	case what == "dead":
		return nil, errWire
	case what == "killed":
		w.kill()
		return nil, errWire
	case what == "fails":
		return answer(req, http.StatusInternalServerError, wireFault), nil
	case refused != nil:
		return refused, nil
	case do != nil:
		do()
	}
	resp, err := w.next.RoundTrip(req)
	if err == nil && resp.StatusCode < 300 && isWrite(req) {
		w.mu.Lock()
		w.writes = append(w.writes, write{req.Method, req.URL.Path})
		dies := w.ages(w.writes[len(w.writes)-1])
		w.mu.Unlock()
		if dies {
			w.kill()
		}
	}
	if what == "lost" {
		if err == nil {
			_ = resp.Body.Close()
		}
		return nil, errWire
	}
	return resp, err
}

// ages tells whether the operator dies after a write. Not where its first write is what the
// one before has died after: a record is written with the time, first as a copy, and an
// operator that never lives on to the record itself would write copies for ever.
func (w *wire) ages(now write) bool {
	if w.lived == 0 && w.last == now && !w.spared {
		w.spared = true
		w.repeated++
		return false
	}
	if w.lived++; w.life == 0 || w.lived < w.life {
		return false
	}
	w.lived, w.dead, w.last, w.spared = 0, true, now, false
	w.deaths++
	return true
}

// live sets how many writes an operator lives for; 0: no end.
func (w *wire) live(writes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.life, w.lived, w.last, w.spared = writes, 0, write{}, false
}

// refuses has requests be answered in the place of the API server; nil ends it.
func (w *wire) refuses(refuse func(*http.Request) *http.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = refuse
}

// met counts a request, and returns what shall happen to it.
func (w *wire) met(req *http.Request) (what string, do func(), refused *http.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return "dead", nil, nil
	}
	w.requests++
	for i, a := range w.armed {
		if a.at == w.requests {
			w.armed = append(w.armed[:i:i], w.armed[i+1:]...)
			w.dead = a.what == "killed"
			return a.what, a.do, nil
		}
	}
	if w.refuse != nil {
		refused = w.refuse(req)
	}
	return "", nil, refused
}

func isWrite(req *http.Request) bool {
	return req.Method != http.MethodGet && !strings.Contains(req.URL.RawQuery, "dryRun=")
}

// arm has something happen at a request of the next pass.
func (w *wire) arm(a armed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = append(w.armed, a)
}

// begin begins a pass; end ends it: what was armed and did not happen is forgotten.
func (w *wire) begin(kill func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests, w.kill = 0, kill
}

func (w *wire) end() (killed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	killed, w.dead, w.armed = w.dead, false, nil
	return killed
}

// written returns the writes from the n-th on, and how many there are.
func (w *wire) written(from int) ([]write, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]write{}, w.writes[from:]...), len(w.writes)
}

// wireFault is what a refusal of the wire says.
const wireFault = "etcdserver: request timed out"

func answer(req *http.Request, status int, message string) *http.Response {
	says := apierrors.NewGenericServerResponse(status, "", schema.GroupResource{}, "", "", 0, false).ErrStatus
	says.TypeMeta, says.Message = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, message
	body := []byte(text(says))
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": []string{"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}
