package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

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
	return nil, &fault.Error{
		Reason: fault.InvalidInput, Op: "listen on", Subject: address, Err: err,
		Hint: "give an address of this host and a port that is free, such as 127.0.0.1:5000 or :5000",
	}
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
		Handler: h, ReadHeaderTimeout: 30 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: log.New(io.Discard, "", 0), // clients that break off and wrong handshakes are no news
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
	return &fault.Error{Reason: fault.Storage, Op: "serve on", Subject: l.Addr().String(), Hint: "start it again", Err: err}
}
