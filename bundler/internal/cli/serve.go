package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/serve"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

// serveFlags are those of `serve` alone.
type serveFlags struct {
	listen, as      string
	tlsCert, tlsKey string
	htpasswd        string
	allowPlainHTTP  bool
	grace           time.Duration
}

const maxHtpasswd = 1 << 20

func (a app) serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve SRC",
		Short: "Serve a bundle as a read-only registry",
		Long: `serve answers as a registry that can be pulled from and not written to, over an
archive, its parts, or a folder as it lies there: for the first hosts of a site, before it has a
registry of its own. The whole bundle is one repository (--as); below it is every
image under its upstream name, as push --layout paths lays them out:

  HOST:PORT/vdo/drivers:latest
  HOST:PORT/vdo/drivers/registry.k8s.io/csi-vsphere/driver:v3.5.1

A delta is served together with the bundle that it is based on (--base), as the whole
bundle that the two are.

With --key or --policy the whole bundle is verified before the first answer.
Without TLS it listens on loopback only, unless --allow-plain-http is given. SIGTERM
and Ctrl-C end it once what is being sent has come to its end (--grace).`,
		Example: `  vdo-bundle serve drivers.tar
  vdo-bundle serve november.tar --base october.tar
  vdo-bundle serve drivers.tar --key release.pub --listen :5000 --tls-cert host.crt --tls-key host.key --htpasswd users`,
		Args: exactly("SRC"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.serve(cmd.Context(), args[0], f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.listen, "listen", "127.0.0.1:5000", "address to listen on: HOST:PORT, or :PORT for all addresses; port 0 takes a free one")
	fl.StringVar(&f.as, "as", "vdo/drivers:latest", "repository and tag of the bundle")
	fl.StringVar(&f.tlsCert, "tls-cert", "", "PEM file of the certificate, with its chain")
	fl.StringVar(&f.tlsKey, "tls-key", "", "PEM file of the certificate's private key")
	fl.StringVar(&f.htpasswd, "htpasswd", "", "demand a login of this file (made with htpasswd -B)")
	fl.BoolVar(&f.allowPlainHTTP, "allow-plain-http", false, "listen without TLS on other addresses than loopback: logins and images can be read and changed on the way")
	fl.StringVar(&a.flags.base, "base", "", "where SRC is a delta: the bundle that has the layers which it leaves out")
	fl.DurationVar(&f.grace, "grace", 30*time.Second, "how long an answer that is being sent may take at the end")
	a.flags.trustFlags(cmd)
	a.flags.verifyMatrixFlags(cmd)
	a.flags.formatFlag(cmd, "o")
	a.flags.quietFlag(cmd)
	return cmd
}

// served is what serve prints once it answers.
type served struct {
	Address    string       `json:"address"`
	TLS        bool         `json:"tls"`
	Login      bool         `json:"login"`
	Reference  string       `json:"reference"` // the bundle, by digest
	Root       image.Digest `json:"root"`
	Repository []string     `json:"repositories"`
}

func (a *app) serve(ctx context.Context, src string, f serveFlags) error {
	at, placeErr := localPlace("serve", src)
	setup, err := f.read()
	rules, rulesErr := a.verifyRules()
	if err := fault.Join(placeErr, err, rulesErr); err != nil {
		return err
	}
	source, err := a.openServed(ctx, at)
	if err != nil {
		return err
	}
	progress := a.reporter()
	b, err := resolved(ctx, source, rules, a.verifyOptions(progress))
	progress.end()
	if err != nil {
		return err
	}
	defer b.Close() //nolint:errcheck // only read
	graph, _, err := b.Whole(ctx, run.Options{})
	if err != nil {
		return err
	}
	if err := refuseDelta(graph); err != nil {
		return err
	}
	listener, err := setup.listen(ctx, f)
	if err != nil {
		return err
	}
	defer listener.Close() //nolint:errcheck // closed by Run, where it came to that
	return a.answer(ctx, listener, graph, b, setup, f.grace)
}

// openServed opens what is served: a bundle, or a delta with its base.
func (a *app) openServed(ctx context.Context, at place) (medium.Source, error) {
	if a.flags.base == "" {
		return a.openSource(ctx, at, nil)
	}
	of, err := localPlace("serve from the base", a.flags.base)
	if err == nil && of.medium == inStream {
		err = badFlag("--base", a.flags.base, errors.New("it cannot come from standard input"), "name FILE.tar or oci:DIR")
	}
	if err != nil {
		return nil, err
	}
	open := func(p place) (*opened, error) {
		source, err := a.openSource(ctx, p, nil)
		if err != nil {
			return nil, err
		}
		return resolved(ctx, source, verify.Rules{}, a.verifyOptions(nil))
	}
	delta, err := open(at)
	if err != nil {
		return nil, err
	}
	base, err := open(of)
	if err != nil {
		return nil, errors.Join(err, delta.Close())
	}
	both, err := pinned.Join(ctx, delta.Bundle, base.Bundle)
	if err != nil {
		return nil, errors.Join(err, delta.Close(), base.Close())
	}
	return both, nil
}

// verifyOptions are options without those of registries, which serve has not.
func (a *app) verifyOptions(p run.Progress) run.Options {
	return run.Options{Progress: p, Now: a.now}
}

// answer serves until ctx is done: that is how a server ends, not an interruption.
func (a *app) answer(ctx context.Context, l net.Listener, g *bundle.Graph, source serve.Source, s serveSetup, grace time.Duration) error {
	host := l.Addr().String()
	at, err := image.ParseReference(host + "/" + s.as)
	if err != nil {
		return err
	}
	reg, err := serve.New(g, source, at)
	if err != nil {
		return err
	}
	var handler http.Handler = reg
	if s.accounts != nil {
		handler = s.accounts.Require(reg)
	}
	root, err := image.ParseDigest(g.Root.Digest.String())
	if err != nil {
		return err
	}
	out := served{Address: host, TLS: s.certificate != nil, Login: s.accounts != nil, Reference: at.Pin(root).String(), Root: root, Repository: reg.Names()}
	if a.flags.format == formatJSON {
		err = writeJSON(a.out, out)
	} else {
		a.say("serving %d repositories on %s until it is stopped", len(out.Repository), host)
		_, err = fmt.Fprintln(a.out, out.Reference)
	}
	if err != nil {
		return err
	}
	if a.grace != nil {
		a.grace.Store(int64(grace))
	}
	return serve.Run(ctx, l, handler, s.certificate, grace)
}

// serveSetup is what the flags of serve come to.
type serveSetup struct {
	as          string
	certificate *tls.Certificate
	accounts    *serve.Accounts
}

// read reads the files that the flags name, and reports all that is wrong.
func (f serveFlags) read() (serveSetup, error) {
	s := serveSetup{as: f.as}
	var errs [4]error
	if ref, err := image.ParseReference("localhost/" + f.as); err != nil || !ref.Digest().IsZero() {
		errs[0] = badFlag("--as", f.as, errors.New("it is no repository with a tag"), "write PATH:TAG such as vdo/drivers:1")
	}
	switch {
	case (f.tlsCert == "") != (f.tlsKey == ""):
		errs[1] = badFlag("--tls-cert", f.tlsCert, errors.New("--tls-cert and --tls-key belong together"), "give both, or neither")
	case f.tlsCert != "":
		s.certificate, errs[1] = certificate(f.tlsCert, f.tlsKey)
	}
	if f.htpasswd != "" {
		var data []byte
		if data, errs[2] = userfile.Read("--htpasswd", f.htpasswd, maxHtpasswd); errs[2] == nil {
			s.accounts, errs[2] = serve.ParseAccounts(f.htpasswd, data)
		}
	}
	if f.grace < 0 {
		errs[3] = badFlag("--grace", f.grace.String(), errors.New("it is negative"), "write a time such as 30s")
	}
	return s, fault.Join(errs[:]...)
}

func certificate(cert, key string) (*tls.Certificate, error) {
	certPEM, certErr := userfile.Read("--tls-cert", cert, maxCAFile)
	keyPEM, keyErr := userfile.Read("--tls-key", key, maxKeyFile)
	if err := fault.Join(certErr, keyErr); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, &fault.Error{
			Reason: fault.InvalidInput, Op: "read certificate", Subject: cert, Err: err,
			Hint: "give a PEM certificate and, unencrypted, the private key that belongs to it",
		}
	}
	return &pair, nil
}

// listen opens the address, and refuses one that others reach without TLS.
func (s serveSetup) listen(ctx context.Context, f serveFlags) (net.Listener, error) {
	l, err := serve.Listen(ctx, f.listen)
	if err != nil {
		return nil, err
	}
	if s.certificate != nil || f.allowPlainHTTP || serve.IsLoopback(l) {
		return l, nil
	}
	_ = l.Close() // nothing has been answered
	return nil, &fault.Error{
		Reason: fault.Refused, Op: "listen on", Subject: f.listen, Err: errors.New("others could reach it, and there is no TLS"),
		Hint: "give --tls-cert and --tls-key, listen on 127.0.0.1, or take the risk with --allow-plain-http",
	}
}

// localPlace reads a place that has to be on this host.
func localPlace(what, s string) (place, error) {
	p, err := parsePlace(s)
	if err == nil && p.medium == inRegistry {
		err = &fault.Error{
			Reason: fault.InvalidInput, Op: what, Subject: fmt.Sprintf("%q", s), Err: errors.New("it is a registry already"),
			Hint: "name FILE.tar or oci:DIR",
		}
	}
	return p, err
}
