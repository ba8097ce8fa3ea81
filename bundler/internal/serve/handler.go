package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// HealthPath answers whoever asks whether the server runs.
const HealthPath = "/healthz"

// Handler answers for a registry: its health to everybody, all else to who logs in, where
// there are accounts. Each request is a line of the log, in the common log format of web
// servers; nil: there is none.
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
			_, _ = io.WriteString(log, s.line(req, time.Now())) // what cannot be logged is answered all the same
		}
	})
}

// stall is how long a client may take for one write.
const stall = time.Minute

// steady ends the connection of a client that takes nothing any more, and counts what it
// took.
type steady struct {
	http.ResponseWriter
	control *http.ResponseController
	status  int // zero: 200
	bytes   int64
}

func (s *steady) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

func (s *steady) Write(p []byte) (int, error) {
	if err := s.control.SetWriteDeadline(time.Now().Add(stall)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := s.ResponseWriter.Write(p)
	s.bytes += int64(n)
	return n, err
}

// line is a request in the common log format. What the client chose is quoted.
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

// Listen opens an address; [IsLoopback] tells what it came to.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err == nil {
		return listener, nil
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return nil, fault.Errorf(fault.InvalidInput, "listen on", address,
		"give an address of this host and a port that is free, such as 127.0.0.1:5000 or :5000", "%w", err)
}

// IsLoopback tells whether only this host can reach a listener.
func IsLoopback(l net.Listener) bool {
	a, ok := l.Addr().(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// Run answers until ctx is done, then lets what is being sent come to its end, for
// at most grace. With a certificate it speaks TLS.
func Run(ctx context.Context, l net.Listener, h http.Handler, certificate *tls.Certificate, grace time.Duration) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 30 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       log.New(io.Discard, "", 0), // clients that break off and wrong handshakes are no news
	}
	ended := make(chan error, 1)
	go func() {
		if certificate == nil {
			ended <- server.Serve(l)
			return
		}
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS12}
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
		_ = server.Close() // whoever is not done after the grace is cut off
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return broken(l, err)
	}
	return nil
}

func broken(l net.Listener, err error) error {
	return fault.Errorf(fault.Storage, "serve on", l.Addr().String(), "start it again", "%w", err)
}
