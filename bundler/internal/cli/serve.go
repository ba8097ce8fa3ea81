package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/serve"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

type serveOptions struct {
	common
	listen          string
	as              []string
	tlsCert, tlsKey string
	htpasswd        string
	accessLog       string
	allowPlainHTTP  bool

	certificate *tls.Certificate // nil: no TLS
	accounts    *serve.Accounts  // nil: no login
	log         io.Writer        // nil: no log
}

const (
	maxHtpasswd = 1 << 20
	grace       = 30 * time.Second // time for answers in progress at shutdown
)

const deltaHint = "name the bundle that has them with --base, push it into the registry that holds its base, " +
	"or serve a bundle that was pulled without --base"

const serveHelp = `serve answers as a read-only registry, over an archive, its parts, or a folder as it lies
there. Each bundle is one repository (--as, once for each SRC). Below it is every image
under its upstream name, as push --layout paths lays them out:

  HOST:PORT/vdo/drivers:latest
  HOST:PORT/vdo/drivers/registry.k8s.io/csi-vsphere/driver:v3.5.1

A delta is served with its base (--base). With --key or --policy the whole bundle is
verified before the first answer. A file may be replaced meanwhile, a folder (oci:DIR) may
not: pull --replace removes what the new bundle lacks. /healthz answers without a login.
Without TLS it listens on loopback only, unless --allow-plain-http is given. SIGTERM and
Ctrl-C end it once what is being sent has come to its end, 30 seconds at most.`

func newServeCommand(a *app) *cobra.Command {
	o := &serveOptions{common: common{app: a}}
	cmd := &cobra.Command{
		Use:   "serve SRC...",
		Short: "Serve bundles as a read-only registry",
		Long:  serveHelp,
		Example: `  vdo-bundle serve drivers.tar
  vdo-bundle serve november.tar --base october.tar
  vdo-bundle serve drivers.tar cni.tar --as vdo/drivers:1 --as vdo/cni:1
  vdo-bundle serve drivers.tar --key release.pub --listen :5000 --tls-cert host.crt --tls-key host.key --htpasswd users`,
		Args: func(cmd *cobra.Command, args []string) error { // one at least
			return flags.Exactly("SRC")(cmd, args[:min(len(args), 1)])
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fl := cmd.Flags()
	fl.StringVar(&o.listen, "listen", "127.0.0.1:5000", "address to listen on: `HOST:PORT`, or :PORT for all addresses; port 0 takes a free one")
	fl.StringArrayVar(&o.as, "as", []string{"vdo/drivers:latest"}, "repository and tag of the bundle: `PATH:TAG`; for several, once for each, in their order")
	fl.StringVar(&o.tlsCert, "tls-cert", "", "PEM `FILE` of the certificate, with its chain")
	fl.StringVar(&o.tlsKey, "tls-key", "", "PEM `FILE` of the certificate's private key")
	fl.StringVar(&o.htpasswd, "htpasswd", "", "demand a login of this `FILE` (made with htpasswd -B)")
	fl.StringVar(&o.accessLog, "access-log", "", "`FILE` to add a line for each request to (common log format), - for standard error")
	fl.BoolVar(&o.allowPlainHTTP, "allow-plain-http", false, "listen without TLS on other addresses than loopback: logins and images can be read and changed on the way")
	return with(cmd, o.bindBase, o.trustFlags.bind, o.bindFormat, o.bindProgress)
}

// served is the output of serve once it answers. Its own Reference and Root are those of the first bundle.
type served struct {
	Address string `json:"address"`
	TLS     bool   `json:"tls"`
	Login   bool   `json:"login"`
	servedBundle
	Bundles    []servedBundle `json:"bundles"`
	Repository []string       `json:"repositories"`
}

type servedBundle struct {
	at        location
	as        image.Reference // the host is unknown at first
	Reference string          `json:"reference"` // by digest
	Root      image.Digest    `json:"root"`
}

// run checks that it can listen, then verifies the bundles before it listens, so that every client gets an answer.
func (o *serveOptions) run(ctx context.Context, args []string) error {
	bundles, rules, err := o.read(args)
	if err != nil {
		return err
	}
	listener, err := o.bound(ctx)
	if err != nil {
		return err
	}
	_ = listener.Close() // no client was answered
	o.sayUnchecked(rules)
	registry := serve.Registry{}
	for n, as := range bundles {
		b, err := o.openAt(ctx, as.at, nil, rules)
		if err != nil {
			return err
		}
		defer b.Close() //nolint:errcheck // only read
		graph, _, err := b.Whole(ctx, run.Options{})
		if err == nil {
			err = graph.RefuseDelta("serve", deltaHint)
		}
		if err == nil {
			err = registry.Add(graph, b.Bundle, as.as)
		}
		if err != nil {
			return err
		}
		bundles[n].Root = b.Digest()
	}
	if listener, err = o.bound(ctx); err != nil {
		return err
	}
	defer listener.Close() //nolint:errcheck // closed by Run, where it came to that
	return o.answer(ctx, listener, registry, bundles)
}

// answer serves until ctx ends, which is the normal end of a server.
func (o *serveOptions) answer(ctx context.Context, l net.Listener, registry serve.Registry, bundles []servedBundle) error {
	host := reachable(l.Addr(), o.certificate)
	for n, b := range bundles {
		bundles[n].Reference = host + "/" + b.as.Path() + "@" + b.Root.String()
	}
	answered := served{
		Address: l.Addr().String(), TLS: o.certificate != nil, Login: o.accounts != nil,
		servedBundle: bundles[0], Bundles: bundles, Repository: registry.Names(),
	}
	err := o.show(answered, func(p *printer) {
		o.say("serving %d repositories on %s until it is stopped", len(answered.Repository), answered.Address)
		for _, b := range bundles {
			p.print(b.Reference)
		}
	})
	if err != nil {
		return err
	}
	o.app.grace.Store(int64(grace))
	return serve.Run(ctx, l, serve.Handler(registry, o.accounts, o.log), o.renewed(), grace)
}

// reachable returns the address for clients. If the server listens on all, its host is this host's name, or one that
// the certificate has.
func reachable(address net.Addr, c *tls.Certificate) string {
	host, err := os.Hostname()
	at, ok := address.(*net.TCPAddr)
	if !ok || !at.IP.IsUnspecified() || err != nil {
		return address.String()
	}
	if c != nil && c.Leaf.VerifyHostname(host) != nil {
		names := slices.Clone(c.Leaf.DNSNames)
		for _, ip := range c.Leaf.IPAddresses {
			names = append(names, ip.String())
		}
		isUsable := func(name string) bool { return !strings.HasPrefix(name, "*") }
		if n := slices.IndexFunc(names, isUsable); n >= 0 {
			host = names[n]
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(at.Port))
}

// openLog opens the access log until the program ends; nil if none. The log must not be a file that serve reads.
func (o *serveOptions) openLog(reads []string) (io.Writer, error) {
	switch o.accessLog {
	case "":
		return nil, nil
	case "-":
		return o.err, nil
	}
	if err := userfile.Vacant(o.accessLog, true, reads...); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(o.accessLog, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return nil, fault.Errorf(fault.Storage, "write access log", o.accessLog,
			"name a file that can be written with --access-log", "%w", atomicfile.WithoutPath(err))
	}
	return f, nil
}

// read reads the arguments and the files of flags, and reports all that are wrong.
func (o *serveOptions) read(sources []string) (bundles []servedBundle, rules verify.Rules, err error) {
	var errs []error
	check := func(err error) { errs = append(errs, err) }
	names, err := o.names(len(sources))
	check(err)
	for n, src := range sources {
		at, err := localLocation("serve", src)
		check(err)
		if n < len(names) {
			bundles = append(bundles, servedBundle{at: at, as: names[n]})
		}
	}
	rules, err = o.rules()
	check(err)
	switch {
	case o.base != "" && len(sources) > 1:
		check(flags.Bad("--base", o.base, fmt.Errorf("it is for one SRC, and there are %d", len(sources)),
			"make the delta whole: `vdo-bundle copy DELTA.tar WHOLE.tar --base BASE`"))
	case o.base != "":
		_, err = localLocation("serve from the base", o.base)
		check(err)
	}
	pair, err := remote.KeyPair("--tls-cert", o.tlsCert, "--tls-key", o.tlsKey)
	if check(err); len(pair) > 0 {
		o.certificate = &pair[0]
		o.warnOutdated(o.certificate.Leaf)
	}
	if o.htpasswd != "" {
		o.accounts, err = userfile.Parse("--htpasswd", o.htpasswd, maxHtpasswd, serve.ParseAccounts)
		check(err)
	}
	archives := append([]string{o.base}, sources...)
	reads := append([]string{o.tlsCert, o.tlsKey, o.htpasswd}, archives...)
	for _, archive := range archives {
		reads = append(reads, partsOf(archive)...)
	}
	o.log, err = o.openLog(reads)
	check(err)
	return bundles, rules, fault.Join(errs...)
}

// partsOf returns the files of an archive in parts; nil if its parts file is missing or unreadable.
func partsOf(archive string) (names []string) {
	at := strings.TrimSuffix(archive, parts.Suffix) + parts.Suffix
	list, err := userfile.Parse("", at, parts.MaxSize, parts.Parse)
	if err != nil {
		return nil // opening the archive reports the problem
	}
	for _, name := range list.Names() {
		names = append(names, filepath.Join(filepath.Dir(at), name))
	}
	return append(names, at)
}

// names parses --as. A bundle's images lie below its repository, so no other bundle may.
func (o *serveOptions) names(bundles int) (names []image.Reference, err error) {
	var errs []error
	refuse := func(as, why, hint string) { errs = append(errs, flags.Bad("--as", as, errors.New(why), hint)) }
	for _, as := range o.as {
		ref, err := image.ParseReference("localhost/" + as)
		if err != nil || !ref.Digest().IsZero() {
			refuse(as, "not a repository with a tag", "write PATH:TAG such as vdo/drivers:1")
		}
		for _, other := range names {
			if strings.HasPrefix(ref.Path(), other.Path()+"/") || strings.HasPrefix(other.Path(), ref.Path()+"/") {
				refuse(as, "it and "+other.Path()+" are below one another", "give each bundle a repository beside the others")
			}
		}
		if !slices.Contains(names, ref) {
			names = append(names, ref)
		}
	}
	if len(errs) == 0 && (len(names) != bundles || len(o.as) != bundles) {
		refuse(strings.Join(o.as, " "), "each bundle needs one name of its own", "give --as once for each SRC, in their order")
	}
	return names, fault.Join(errs...)
}

// renewed returns the certificate that the files have for each connection. While a renewal has written one file, it is
// the one of before.
func (o *serveOptions) renewed() serve.Certificate {
	if o.certificate == nil {
		return nil
	}
	written := func() (at [2]time.Time) {
		for i, name := range []string{o.tlsCert, o.tlsKey} {
			if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() { // a pipe is read once
				at[i] = info.ModTime()
			}
		}
		return at
	}
	var one sync.Mutex
	var read [2]time.Time // none: the verification since the start may have taken long
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		one.Lock()
		defer one.Unlock()
		if now := written(); now != read {
			if pair, err := remote.KeyPair("", o.tlsCert, "", o.tlsKey); err == nil {
				o.certificate, read = &pair[0], now
			}
		}
		return o.certificate, nil
	}
}

// warnOutdated warns of a certificate that clients refuse now.
func (o *serveOptions) warnOutdated(c *x509.Certificate) {
	if now := time.Now(); now.Before(c.NotBefore) || now.After(c.NotAfter) {
		o.say("warning: clients refuse the certificate %s now: it is valid from %s to %s",
			o.tlsCert, c.NotBefore.UTC().Format(time.RFC3339), c.NotAfter.UTC().Format(time.RFC3339))
	}
}

// bound opens the address, and refuses one that other hosts reach without TLS.
func (o *serveOptions) bound(ctx context.Context) (net.Listener, error) {
	l, err := serve.Listen(ctx, o.listen)
	if err != nil {
		return nil, err
	}
	if o.certificate != nil || o.allowPlainHTTP || serve.IsLoopback(l) {
		return l, nil
	}
	_ = l.Close() // no client was answered
	return nil, fault.Errorf(fault.Refused, "listen on", o.listen,
		"give --tls-cert and --tls-key, listen on 127.0.0.1, or take the risk with --allow-plain-http",
		"others could reach it, and there is no TLS")
}
