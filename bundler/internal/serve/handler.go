package serve

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/sync/semaphore"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// HealthPath is the path of the health check.
const HealthPath = "/healthz"

// Handler serves a registry: health to everyone, all else after a login if there are accounts. It logs each request
// as a line in the common log format of web servers; nil disables the log.
func Handler(r Registry, a *Accounts, log io.Writer) http.Handler {
	var mu sync.Mutex // of the log
	var guarded http.Handler = r
	if a != nil {
		guarded = a.Require(r)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s := &steady{ResponseWriter: w, control: http.NewResponseController(w)}
		if req.URL.Path == HealthPath {
			answer(s, req, "text/plain", []byte("ok\n"))
		} else {
			guarded.ServeHTTP(s, req)
		}
		if log != nil {
			mu.Lock()
			defer mu.Unlock()
			_, _ = io.WriteString(log, s.line(req, time.Now())) // a failed log does not affect the answer
		}
	})
}

// stall limits the time that a client may take for one write.
const stall = time.Minute

// steady disconnects a client that stopped reading, and counts the bytes sent.
type steady struct {
	http.ResponseWriter
	control *http.ResponseController
	status  int // zero: 200
	bytes   int64
}

func (s *steady) WriteHeader(status int) {
	s.status = status
	s.extend() // the deadline of the connection's last answer may be over
	s.ResponseWriter.WriteHeader(status)
}

func (s *steady) extend() {
	_ = s.control.SetWriteDeadline(time.Now().Add(stall)) // a failure shows in writing
}

func (s *steady) Write(p []byte) (int, error) {
	s.extend()
	n, err := s.ResponseWriter.Write(p)
	s.bytes += int64(n)
	return n, err
}

// line returns a request in the common log format. It quotes what the client chose.
func (s *steady) line(req *http.Request, now time.Time) string {
	client, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		client = req.RemoteAddr
	}
	user := "-"
	if name, _, ok := req.BasicAuth(); ok {
		user = fmt.Sprintf("%.100q", name)
	}
	return fmt.Sprintf("%s - %s [%s] %.1000q %d %d\n", client, user, now.Format("02/Jan/2006:15:04:05 -0700"),
		req.Method+" "+req.URL.RequestURI()+" "+req.Proto, cmp.Or(s.status, http.StatusOK), s.bytes)
}

// Listen opens an address; see [IsLoopback] for its reach.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err == nil {
		return listener, nil
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return nil, fault.Errorf(fault.InvalidInput, "listen on", address,
		"give an address of this host and a port that is free, such as 127.0.0.1:5000 or :5000", "%w", err)
}

// IsLoopback reports whether only this host can reach a listener.
func IsLoopback(l net.Listener) bool {
	a, ok := l.Addr().(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// Certificate returns the certificate for a connection.
type Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// Run serves until ctx ends, then waits up to grace for answers in progress. It uses TLS if there is a certificate.
func Run(ctx context.Context, l net.Listener, h http.Handler, certificate Certificate, grace time.Duration) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 30 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       log.New(io.Discard, "", 0), // disconnects and failed handshakes are not worth a log line
	}
	ended := make(chan error, 1)
	go func() {
		if certificate == nil {
			ended <- server.Serve(l)
			return
		}
		server.TLSConfig = &tls.Config{GetCertificate: certificate, MinVersion: tls.VersionTLS12}
		ended <- server.ServeTLS(l, "", "")
	}()
	select {
	case err := <-ended:
		return broken(l, err)
	case <-ctx.Done():
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if server.Shutdown(late) != nil {
		_ = server.Close() // disconnects all who are not done after the grace
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return broken(l, err)
	}
	return nil
}

func broken(l net.Listener, err error) error {
	return fault.Errorf(fault.Storage, "serve on", l.Addr().String(), "start it again", "%w", err)
}

// Accounts are the users of an htpasswd file with bcrypt hashes (htpasswd -B).
type Accounts struct {
	hashes map[string][]byte
	nobody []byte // hash to compare with for unknown users

	limit *semaphore.Weighted // hashing is slow on purpose: one per core
	// turns let each client check one unknown login at a time, so that wrong logins occupy one slot at most. Some
	// clients share a turn by chance.
	turns [256]*semaphore.Weighted
	seed  maphash.Seed
	key   []byte
	known sync.Map // keyed digests of correct logins
}

const (
	accountsHint = "make it with `htpasswd -B -c FILE USER`"
	maxAccounts  = 10000
)

func newAccounts(limit int) *Accounts {
	a := &Accounts{
		hashes: map[string][]byte{}, key: []byte(rand.Text()),
		limit: semaphore.NewWeighted(int64(limit)), seed: maphash.MakeSeed(),
	}
	for n := range a.turns {
		a.turns[n] = semaphore.NewWeighted(1)
	}
	return a
}

// ParseAccounts parses an htpasswd file; name is for errors.
func ParseAccounts(name string, data []byte) (*Accounts, error) {
	a := newAccounts(runtime.GOMAXPROCS(0))
	bad := func(format string, args ...any) error {
		return fault.Errorf(fault.InvalidInput, "read", name, accountsHint, format, args...)
	}
	var errs []error
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		user, hash, ok := strings.Cut(line, ":")
		_, err := bcrypt.Cost([]byte(hash))
		switch {
		case !ok || user == "":
			errs = append(errs, bad("line %d is not USER:HASH", n))
		case err != nil:
			errs = append(errs, bad("line %d: the hash of %.100q is not one of bcrypt", n, user))
		case a.hashes[user] != nil:
			errs = append(errs, bad("line %d: %.100q is there twice", n, user))
		default:
			a.hashes[user] = []byte(hash)
			a.nobody = a.hashes[user]
		}
	}
	if err := lines.Err(); err != nil {
		errs = append(errs, bad("%w", err))
	}
	if len(errs) == 0 && (len(a.hashes) == 0 || len(a.hashes) > maxAccounts) {
		errs = append(errs, bad("it has %d users", len(a.hashes)))
	}
	return a, fault.Join(errs...)
}

// Require serves only requests with a valid login (HTTP Basic).
func (a *Accounts) Require(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		user, password, given := req.BasicAuth()
		right := false
		if given {
			var err error
			if right, err = a.check(req, user, password); err != nil {
				return // the client is gone
			}
		}
		if right {
			next.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
		w.Header().Set("WWW-Authenticate", `Basic realm="vdo-bundle", charset="UTF-8"`)
		refuse(w, http.StatusUnauthorized, unauthorized, "log in")
	})
}

// check verifies a login. It caches correct ones by a keyed digest.
func (a *Accounts) check(req *http.Request, user, password string) (bool, error) {
	mac := hmac.New(sha256.New, a.key)
	fmt.Fprintf(mac, "%d:%s%s", len(user), user, password)
	login := string(mac.Sum(nil))
	if _, right := a.known.Load(login); right {
		return true, nil
	}
	done, err := a.turn(req)
	if err != nil {
		return false, err
	}
	defer done()
	hash, exists := a.hashes[user]
	if !exists {
		hash = a.nobody // takes as long as for a known user
	}
	if bcrypt.CompareHashAndPassword(hash, []byte(password)) != nil || !exists {
		return false, nil
	}
	a.known.Store(login, true)
	return true, nil
}

// turn waits for the client's turn, then for a slot. It fails if the client disconnects.
func (a *Accounts) turn(req *http.Request) (done func(), err error) {
	address, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		address = req.RemoteAddr
	}
	turn := a.turnOf(address)
	if err := turn.Acquire(req.Context(), 1); err != nil {
		return nil, err
	}
	if err := a.limit.Acquire(req.Context(), 1); err != nil {
		turn.Release(1)
		return nil, err
	}
	return func() { a.limit.Release(1); turn.Release(1) }, nil
}

func (a *Accounts) turnOf(address string) *semaphore.Weighted {
	return a.turns[maphash.String(a.seed, address)%uint64(len(a.turns))]
}
