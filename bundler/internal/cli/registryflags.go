package cli

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

type registryFlags struct {
	remote                remote.Options
	hostsConfig, authFile string
	access                pflag.FlagSet // what a login needs too
	retries               int
	rateLimit, chunkSize  string
	dryRun                bool // of commands that write a bundle
}

// bind binds the flags of commands that move or read bundles.
func (f *registryFlags) bind(cmd *cobra.Command) {
	f.bindAccess(cmd)
	flags.Group(cmd, flags.Tuning, func(fl *pflag.FlagSet) {
		fl.IntVar(&f.remote.Concurrency, "concurrency", 6, "how many (`N`) large blobs at a time, for each host; of small things up to 16 times as many (128 at most)")
		f.bindRequests(fl)
		fl.StringVar(&f.rateLimit, "rate-limit", "", "bytes a second (`SIZE`) that all transfers together may take: 10MB, 500KiB")
	})
}

// bindSmall binds the flags of commands that read no large blobs.
func (f *registryFlags) bindSmall(cmd *cobra.Command) {
	f.bindAccess(cmd)
	flags.Group(cmd, flags.Tuning, f.bindRequests)
}

func (f *registryFlags) bindAccess(cmd *cobra.Command) {
	flags.Group(cmd, flags.Registries, func(fl *pflag.FlagSet) {
		f.bindCA(fl)
		fl.StringVar(&f.authFile, "authfile", "", "`FILE` with logins of registries (default: those of docker and podman, see login)")
		fl.StringVar(&f.remote.ClientCert, "client-cert", "", "PEM `FILE` of the certificate to show to registries that ask for one")
		fl.StringVar(&f.remote.ClientKey, "client-key", "", "PEM `FILE` of that certificate's private key")
		fl.StringArrayVar(&f.remote.PlainHTTP, "plain-http", nil, "speak HTTP without TLS to this `HOST[:PORT]` (repeatable)")
		fl.StringArrayVar(&f.remote.SkipTLSVerify, "insecure-skip-tls-verify", nil,
			"take any certificate of this `HOST[:PORT]`, which others on the way can abuse (repeatable)")
		fl.StringVar(&f.hostsConfig, "hosts-config", "", "YAML `FILE` with settings of single hosts, also those of upstream manifests: CA, client certificate, mirror, …")
		f.access = *fl
	})
}

func (f *registryFlags) bindRequests(fl *pflag.FlagSet) {
	f.remote.Concurrency = 6 // also without a flag for it
	fl.IntVar(&f.retries, "retries", 5, "how often (`N`) a request is made again that failed for a passing reason")
	fl.DurationVar(&f.remote.Stall, "timeout", time.Minute, "how long (`DURATION`) a host may be silent before a request is made again")
}

func (f *registryFlags) bindCA(fl *pflag.FlagSet) {
	fl.StringArrayVar(&f.remote.CAFiles, "ca-file", nil, "PEM `FILE` of CA certificates to trust besides the system's (repeatable)")
}

func (f *registryFlags) bindUpload(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "write nothing, and tell what would be moved")
	flags.Group(cmd, flags.Registries, func(fl *pflag.FlagSet) {
		fl.BoolVar(&f.remote.OmitRefused, "omit-refused", false, "push without the signatures and other referrers that the registry does not take, and name them")
		fl.Bool("check-all", false, "has no effect: a push always asks for every part")
		_ = fl.MarkHidden("check-all") // bound above
	})
	flags.Group(cmd, flags.Tuning, func(fl *pflag.FlagSet) {
		fl.StringVar(&f.chunkSize, "chunk-size", "", "send larger blobs in parts of this `SIZE`: 50MB, 16MiB (default: where a whole blob is refused)")
	})
}

const minRate = 1000 // bytes per second; less would never finish

// client returns the registry client, or all faults of the flags.
func (f *registryFlags) client(c *common) (*remote.Client, error) {
	o, err := f.options(c)
	if err != nil {
		return nil, err
	}
	return remote.NewClient(o)
}

// options completes what the flags have set, or returns all faults.
func (f *registryFlags) options(c *common) (remote.Options, error) {
	o := &f.remote
	o.Attempts, o.LoginFlags, o.UserAgent, o.Trace = f.retries+1, f.given(), "vdo-bundle/"+version().Version, c.trace()
	o.Paused = func(host string, pause time.Duration) {
		c.say("%s limits requests: waiting %s", host, pause.Round(time.Second))
	}
	problems := []error{bounded("--concurrency", o.Concurrency, 1, 64, "6 is a good value for most links"), f.checkPatience()}
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
	var hostsErr, loginErr error
	if o.Hosts = map[string]remote.HostOptions{}; f.hostsConfig != "" {
		o.Hosts, hostsErr = userfile.Parse("--hosts-config", f.hostsConfig, remote.MaxConfigSize, remote.ParseConfig)
	}
	if o.Credentials = remote.DefaultCredentials; f.authFile != "" { // else only this file
		o.Credentials, loginErr = userfile.Parse("--authfile", f.authFile, maxAuthFile, remote.ConfigCredentials)
	}
	return *o, fault.Join(append(problems, hostsErr, loginErr)...)
}

// given repeats the flags that a login needs too.
func (f *registryFlags) given() (out string) {
	f.access.VisitAll(func(flag *pflag.Flag) {
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for i := 0; flag.Changed && i < len(values); i++ {
			out += " " + fault.Quote("--"+flag.Name, values[i])
		}
	})
	return out
}

func (f *registryFlags) checkPatience() error {
	err := bounded("--retries", f.retries, 0, 100, "5 is a good value for most links")
	if f.remote.Stall < time.Second || f.remote.Stall > time.Hour {
		why := errors.New("not between 1s and 1h")
		err = fault.Join(err, flags.Bad("--timeout", f.remote.Stall.String(), why, "1m is a good value for most links"))
	}
	return err
}

func bounded(flag string, value, least, most int, hint string) error {
	if value >= least && value <= most {
		return nil
	}
	return flags.Bad(flag, fmt.Sprint(value), fmt.Errorf("not between %d and %d", least, most), hint)
}

const maxAuthFile = 4 << 20

// trace returns a function that prints requests for --debug; nil without it. An [remote.Exchange] holds no secret.
func (a *app) trace() func(remote.Exchange) {
	if !a.debug {
		return nil
	}
	var mu sync.Mutex
	return func(x remote.Exchange) {
		outcome := fmt.Sprint(x.Status)
		if x.Err != "" {
			outcome = x.Err
		}
		mu.Lock()
		defer mu.Unlock()
		a.say("debug: %s %s: %s (%s)", x.Method, x.Target, outcome, x.Took.Round(time.Millisecond))
	}
}
