package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

// registryFlags say how registries are spoken to.
type registryFlags struct {
	caFile, clientCert, clientKey string
	plainHTTP                     []string
	hostsConfig                   string // settings of single hosts
	authFile                      string
	tuningFlags
	uploadFlags
}

// tuningFlags are for links that the defaults do not suit.
type tuningFlags struct {
	concurrency, retries, ranges int
	timeout                      time.Duration
	rateLimit                    string
}

// uploadFlags are those of commands that write a bundle.
type uploadFlags struct {
	dryRun, omitRefused bool
	chunkSize           string
}

// bind is for commands that move or read bundles.
func (f *registryFlags) bind(cmd *cobra.Command) {
	f.bindAccess(cmd)
	flags.Group(cmd, flags.Tuning, func(fl *pflag.FlagSet) {
		fl.IntVar(&f.concurrency, "concurrency", f.concurrency, "how many (`N`) large blobs at a time, for each host; of small things up to 16 times as many (128 at most)")
		f.bindRequests(fl)
		fl.StringVar(&f.rateLimit, "rate-limit", "", "bytes a second (`SIZE`) that all transfers together may take: 10MB, 500KiB")
		fl.IntVar(&f.ranges, "ranges", f.ranges, "read blobs of 64 MiB and more over `N` connections, for hosts that hold each one back")
	})
}

// bindSmall is for commands that ask registries for nothing large.
func (f *registryFlags) bindSmall(cmd *cobra.Command) {
	f.bindAccess(cmd)
	flags.Group(cmd, flags.Tuning, f.bindRequests)
}

func (f *registryFlags) bindAccess(cmd *cobra.Command) {
	f.concurrency, f.ranges = 6, 1
	flags.Group(cmd, flags.Registries, func(fl *pflag.FlagSet) {
		f.bindCA(fl, "")
		fl.StringVar(&f.authFile, "authfile", "", "`FILE` with logins of registries (default: those of docker and podman, see login)")
		fl.StringVar(&f.clientCert, "client-cert", "", "PEM `FILE` of the certificate to show to registries that ask for one")
		fl.StringVar(&f.clientKey, "client-key", "", "PEM `FILE` of that certificate's private key")
		fl.StringArrayVar(&f.plainHTTP, "plain-http", nil, "speak HTTP without TLS to this `HOST[:PORT]` (repeatable)")
		fl.StringVar(&f.hostsConfig, "hosts-config", "", "YAML `FILE` with settings of single hosts, also those of upstream manifests: CA, client certificate, mirror, …")
	})
}

func (f *registryFlags) bindRequests(fl *pflag.FlagSet) {
	f.bindPatience(fl, "how often (`N`) a request is made again that failed for a passing reason",
		"how long (`DURATION`) a host may be silent, or send less than 64 bytes a second, before a request is made again")
}

func (f *registryFlags) bindCA(fl *pflag.FlagSet, of string) {
	fl.StringVar(&f.caFile, "ca-file", "", "PEM `FILE` of certificate authorities to trust besides the system's"+of)
}

func (f *tuningFlags) bindPatience(fl *pflag.FlagSet, retries, timeout string) {
	fl.IntVar(&f.retries, "retries", 5, retries)
	fl.DurationVar(&f.timeout, "timeout", time.Minute, timeout)
}

func (f *registryFlags) bindUpload(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "write nothing, and tell what would be moved")
	flags.Group(cmd, flags.Registries, func(fl *pflag.FlagSet) {
		fl.BoolVar(&f.omitRefused, "omit-refused", false, "push without the signatures and other attachments that the registry does not take, and name them")
		fl.Bool("check-all", false, "has no effect: a push always asks for every part")
		_ = fl.MarkHidden("check-all") // it was bound right above
	})
	flags.Group(cmd, flags.Tuning, func(fl *pflag.FlagSet) {
		fl.StringVar(&f.chunkSize, "chunk-size", "", "send larger blobs in parts of this `SIZE`: 50MB, 16MiB (default: where a whole blob is refused)")
	})
}

// options are those of a flow that moves or reads a bundle.
func (f *registryFlags) options(a *app, p run.Progress) run.Options {
	return run.Options{Concurrency: f.concurrency, Progress: p, Now: a.now, DryRun: f.dryRun}
}

const minRate = 1000 // bytes a second; less would never end

// client returns what speaks to registries, or all that is wrong with the flags.
func (f *registryFlags) client(a *app) (*remote.Client, error) {
	o := remote.Options{
		CAFile: f.caFile, PlainHTTP: f.plainHTTP, ClientCert: f.clientCert, ClientKey: f.clientKey,
		Concurrency: f.concurrency, Attempts: f.retries + 1, Stall: f.timeout, Ranges: f.ranges,
		UserAgent: "vdo-bundle/" + version().Version, OmitRefused: f.omitRefused, Trace: a.trace(),
	}
	problems := []error{f.checkTuning()}
	var err error
	if f.rateLimit != "" {
		if o.Rate, err = size.Parse(f.rateLimit); err == nil && o.Rate < minRate {
			err = fmt.Errorf("less than %d bytes a second", minRate)
		}
		if err != nil {
			problems = append(problems, flags.Bad("--rate-limit", f.rateLimit, err, "write 10MB or 500KiB, for each second"))
		}
	}
	if f.chunkSize != "" {
		if o.ChunkSize, err = remote.ParseChunkSize(f.chunkSize); err != nil {
			problems = append(problems, flags.Bad("--chunk-size", f.chunkSize, err, "write 50MB or 16MiB"))
		}
	}
	config, err := f.hosts()
	problems = append(problems, err)
	o.Credentials, err = f.credentials()
	if err := fault.Join(append(problems, err)...); err != nil {
		return nil, err
	}
	o.Hosts = config.Hosts
	return remote.NewClient(o)
}

// checkTuning says which numbers are out of bounds.
func (f *tuningFlags) checkTuning() error {
	var problems []error
	if f.concurrency < 1 || f.concurrency > 64 {
		problems = append(problems, flags.Bad("--concurrency", fmt.Sprint(f.concurrency), errors.New("not between 1 and 64"), "6 is a good value for most links"))
	}
	if f.ranges < 1 || f.ranges > 8 {
		problems = append(problems, flags.Bad("--ranges", fmt.Sprint(f.ranges), errors.New("not between 1 and 8"), "1 is right unless the registry holds each connection back"))
	}
	return fault.Join(append(problems, f.checkPatience())...)
}

// checkPatience says what is wrong with --retries and --timeout.
func (f *tuningFlags) checkPatience() error {
	var retries, timeout error
	if f.retries < 0 || f.retries > 100 {
		retries = flags.Bad("--retries", fmt.Sprint(f.retries), errors.New("not between 0 and 100"), "5 is a good value for most links")
	}
	if f.timeout < time.Second || f.timeout > time.Hour {
		timeout = flags.Bad("--timeout", f.timeout.String(), errors.New("not between 1s and 1h"), "1m is a good value for most links")
	}
	return fault.Join(retries, timeout)
}

// hosts reads the settings of single hosts; none where there is no file.
func (f *registryFlags) hosts() (*remote.Config, error) {
	if f.hostsConfig == "" {
		return &remote.Config{}, nil
	}
	data, err := userfile.Read("--hosts-config", f.hostsConfig, remote.MaxConfigSize)
	if err != nil {
		return nil, err
	}
	return remote.ParseConfig(f.hostsConfig, data)
}

const maxAuthFile = 4 << 20

// credentials finds logins: in the file of --authfile alone, where it is given.
func (f *registryFlags) credentials() (remote.CredentialFunc, error) {
	if f.authFile == "" {
		return remote.DefaultCredentials, nil
	}
	data, err := userfile.Read("--authfile", f.authFile, maxAuthFile)
	if err != nil {
		return nil, err
	}
	return remote.ConfigCredentials(f.authFile, data)
}

// authorities are those of --ca-file and the system's; nil for the system's alone.
func (f *registryFlags) authorities() (*x509.CertPool, error) {
	if f.caFile == "" {
		return nil, nil
	}
	pem, err := userfile.Read("--ca-file", f.caFile, maxCAFile)
	if err != nil {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, &fault.Error{
			Reason: fault.InvalidInput, Op: "read", Subject: f.caFile, Err: errors.New("no PEM certificate in it"),
			Hint: "give the certificates of the authority in PEM with --ca-file",
		}
	}
	return pool, nil
}

// opened is a bundle that can be read, with what was verified of it, and where it is.
type opened struct {
	*pinned.Bundle
	verified *verify.Verification // nil where nothing was
	at       place
	client   *remote.Client
}

// open opens the bundle that an argument names, and verifies it first where the rules
// have a policy: what is returned is all that may be read from there on.
func (f *registryFlags) open(ctx context.Context, a *app, arg string, rules verify.Rules, p run.Progress) (opened, error) {
	source, at, client, err := f.source(ctx, a, arg)
	if err != nil {
		return opened{}, err
	}
	b, err := resolved(ctx, source, rules, f.options(a, p))
	b.at, b.client = at, client
	return b, err
}

// source opens the medium that an argument names, for what signs it and for open.
func (f *registryFlags) source(ctx context.Context, a *app, arg string) (medium.Source, place, *remote.Client, error) {
	p, err := parsePlace(arg)
	client, clientErr := f.client(a)
	if err := fault.Join(err, clientErr); err != nil {
		return nil, p, nil, err
	}
	source, err := a.openSource(ctx, p, client)
	return source, p, client, err
}
