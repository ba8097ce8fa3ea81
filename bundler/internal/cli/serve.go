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
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/serve"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

// serveOptions are the flags of `serve`.
type serveOptions struct {
	*app
	trustFlags
	outputFlags
	listen, as      string
	tlsCert, tlsKey string
	htpasswd        string
	base            string
	allowPlainHTTP  bool
	grace           time.Duration
}

const maxHtpasswd = 1 << 20

const serveHelp = `serve answers as a registry that can be pulled from and not written to, over an
archive, its parts, or a folder as it lies there: for the first hosts of a site, before it has a
registry of its own. The whole bundle is one repository (--as); below it is every
image under its upstream name, as push --layout paths lays them out:

  HOST:PORT/vdo/drivers:latest
  HOST:PORT/vdo/drivers/registry.k8s.io/csi-vsphere/driver:v3.5.1

A delta is served together with the bundle that it is based on (--base), as the whole
bundle that the two are.

With --key or --policy the whole bundle is verified before the first answer.
Without TLS it listens on loopback only, unless --allow-plain-http is given. SIGTERM
and Ctrl-C end it once what is being sent has come to its end (--grace).`

func newServeCommand(a *app) *cobra.Command {
	o := &serveOptions{app: a}
	cmd := &cobra.Command{
		Use:   "serve SRC",
		Short: "Serve a bundle as a read-only registry",
		Long:  serveHelp,
		Example: `  vdo-bundle serve drivers.tar
  vdo-bundle serve november.tar --base october.tar
  vdo-bundle serve drivers.tar --key release.pub --listen :5000 --tls-cert host.crt --tls-key host.key --htpasswd users`,
		Args: flags.Exactly("SRC"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	fl := cmd.Flags()
	fl.StringVar(&o.listen, "listen", "127.0.0.1:5000", "address to listen on: `HOST:PORT`, or :PORT for all addresses; port 0 takes a free one")
	fl.StringVar(&o.as, "as", "vdo/drivers:latest", "repository and tag of the bundle: `PATH:TAG`")
	fl.StringVar(&o.tlsCert, "tls-cert", "", "PEM `FILE` of the certificate, with its chain")
	fl.StringVar(&o.tlsKey, "tls-key", "", "PEM `FILE` of the certificate's private key")
	fl.StringVar(&o.htpasswd, "htpasswd", "", "demand a login of this `FILE` (made with htpasswd -B)")
	fl.BoolVar(&o.allowPlainHTTP, "allow-plain-http", false, "listen without TLS on other addresses than loopback: logins and images can be read and changed on the way")
	fl.StringVar(&o.base, "base", "", "where SRC is a delta: the `BUNDLE` that has the layers which it leaves out")
	fl.DurationVar(&o.grace, "grace", 30*time.Second, "how long (`DURATION`) an answer that is being sent may take at the end")
	o.trustFlags.bind(cmd)
	o.bindFormat(cmd)
	o.bindQuiet(cmd)
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

func (o *serveOptions) run(ctx context.Context, src string) error {
	at, placeErr := localPlace("serve", src)
	setup, err := o.read()
	rules, rulesErr := o.rules()
	if err := fault.Join(placeErr, err, rulesErr); err != nil {
		return err
	}
	source, err := o.openServed(ctx, at)
	if err != nil {
		return err
	}
	progress := o.reporter(o.app)
	b, err := resolved(ctx, source, rules, o.localOptions(progress))
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
	listener, err := o.bound(ctx, setup.certificate != nil)
	if err != nil {
		return err
	}
	defer listener.Close() //nolint:errcheck // closed by Run, where it came to that
	return o.answer(ctx, listener, graph, b, setup)
}

// openServed opens what is served: a bundle, or a delta with its base.
func (o *serveOptions) openServed(ctx context.Context, at place) (medium.Source, error) {
	if o.base == "" {
		return o.openSource(ctx, at, nil)
	}
	of, err := localPlace("serve from the base", o.base)
	if err == nil && of.medium == inStream {
		err = flags.Bad("--base", o.base, errors.New("it cannot come from standard input"), "name FILE.tar or oci:DIR")
	}
	if err != nil {
		return nil, err
	}
	open := func(p place) (opened, error) {
		source, err := o.openSource(ctx, p, nil)
		if err != nil {
			return opened{}, err
		}
		return resolved(ctx, source, verify.Rules{}, o.localOptions(nil))
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

// answer serves until ctx is done: that is how a server ends, not an interruption.
func (o *serveOptions) answer(ctx context.Context, l net.Listener, g *bundle.Graph, source medium.Reader, s serveSetup) error {
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
	answered := served{Address: host, TLS: s.certificate != nil, Login: s.accounts != nil, Reference: at.Pin(root).String(), Root: root, Repository: reg.Names()}
	if o.json() {
		err = command.WriteJSON(o.out, answered)
	} else {
		o.say("serving %d repositories on %s until it is stopped", len(answered.Repository), host)
		_, err = fmt.Fprintln(o.out, answered.Reference)
	}
	if err != nil {
		return err
	}
	o.app.grace.Store(int64(o.grace))
	return serve.Run(ctx, l, handler, s.certificate, o.grace)
}

// serveSetup is what the flags of serve come to.
type serveSetup struct {
	as          string
	certificate *tls.Certificate
	accounts    *serve.Accounts
}

// read reads the files that the flags name, and reports all that is wrong.
func (o *serveOptions) read() (serveSetup, error) {
	s := serveSetup{as: o.as}
	var errs [4]error
	if ref, err := image.ParseReference("localhost/" + o.as); err != nil || !ref.Digest().IsZero() {
		errs[0] = flags.Bad("--as", o.as, errors.New("not a repository with a tag"), "write PATH:TAG such as vdo/drivers:1")
	}
	switch {
	case (o.tlsCert == "") != (o.tlsKey == ""):
		errs[1] = flags.Bad("--tls-cert", o.tlsCert, errors.New("--tls-cert and --tls-key belong together"), "give both, or neither")
	case o.tlsCert != "":
		s.certificate, errs[1] = certificate(o.tlsCert, o.tlsKey)
	}
	if o.htpasswd != "" {
		var data []byte
		if data, errs[2] = userfile.Read("--htpasswd", o.htpasswd, maxHtpasswd); errs[2] == nil {
			s.accounts, errs[2] = serve.ParseAccounts(o.htpasswd, data)
		}
	}
	if o.grace < 0 {
		errs[3] = flags.Bad("--grace", o.grace.String(), errors.New("negative"), "write a time such as 30s")
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

// bound opens the address, and refuses one that others reach without TLS.
func (o *serveOptions) bound(ctx context.Context, tls bool) (net.Listener, error) {
	l, err := serve.Listen(ctx, o.listen)
	if err != nil {
		return nil, err
	}
	if tls || o.allowPlainHTTP || serve.IsLoopback(l) {
		return l, nil
	}
	_ = l.Close() // nothing has been answered
	return nil, &fault.Error{
		Reason: fault.Refused, Op: "listen on", Subject: o.listen, Err: errors.New("others could reach it, and there is no TLS"),
		Hint: "give --tls-cert and --tls-key, listen on 127.0.0.1, or take the risk with --allow-plain-http",
	}
}

// localPlace reads a place that has to be on this host.
func localPlace(what, s string) (place, error) {
	p, err := parsePlace(s)
	if err == nil && p.medium == inRegistry {
		err = &fault.Error{
			Reason: fault.InvalidInput, Op: what, Subject: fmt.Sprintf("%q", s), Err: errors.New("in a registry already"),
			Hint: "name FILE.tar or oci:DIR",
		}
	}
	return p, err
}

// refuseDelta is for commands that need every layer of a bundle.
func refuseDelta(g *bundle.Graph) error {
	if g.Base == nil {
		return nil
	}
	return &fault.Error{
		Reason: fault.Refused, Op: "serve", Subject: g.Root.Digest.String(), Err: fmt.Errorf("it is a delta, and %d layers are left to the base %s", len(g.Base.Layers), g.Base.Root),
		Hint: "name the bundle that has them with --base, push it into the registry that holds its base, or serve a bundle that was pulled without --base",
	}
}
