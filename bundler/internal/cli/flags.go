package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

const (
	formatText = "text"
	formatJSON = "json"
)

// flags are all flags of all commands; each command binds those that it has.
type flags struct {
	// output
	format string
	quiet  bool
	dest   string
	// what to take
	drivers, kubernetes, vSphere, releases []string
	platform                               string
	operator                               string
	lock                                   string
	// the matrix
	matrix, matrixKey string
	matrixPolicy      string
	allowExpired      bool
	// where from
	sourceMap   []string
	manifestDir string
	// how
	caFile      string
	plainHTTP   []string
	concurrency int
	retries     int
	rateLimit   string
	ranges      int
	timeout     time.Duration
	clientCert  string
	clientKey   string
	registries  string
	chunkSize   string
	checkAll    bool
	omitRefused bool
	dryRun      bool
	replace     bool
	restart     bool
	layout      string // of a push
	// media
	base, have string
	receipt    string
	mountFrom  []string
	volumeSize bytesFlag
	parity     int
	keep       int
	keepTags   []string
	keepRoots  []string
	yes        bool
	// keys
	key                           string
	passwordFile                  string
	passwordEnv                   string
	certificate, certificateChain string
	timestampServer               string
	timestampRoots                string
	// upstream's own signatures
	verifyUpstream, carry string
	provenance            bool // of a pull; of verify: it is demanded
	keys                  []string
	policy                string
	identity              string
}

// formatFlag binds --format; -o is short for it where -o is not a destination.
func (f *flags) formatFlag(cmd *cobra.Command, short string) {
	f.format = formatText
	cmd.Flags().VarP(&choice{to: &f.format, of: []string{formatText, formatJSON}}, "format", short, "how to print the result: text or json")
}

func (f *flags) quietFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "do not show progress")
}

// selectionFlags say which drivers a bundle holds.
func (f *flags) selectionFlags(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringSliceVar(&f.drivers, "drivers", nil, "drivers to take: cpi, csi, cni, snapshot (default cpi,csi,snapshot)")
	fl.StringSliceVar(&f.kubernetes, "k8s", nil, "Kubernetes versions to cover: 1.33, 1.32-1.34 or a list (default the last three that the matrix covers)")
	fl.StringSliceVar(&f.vSphere, "vsphere", nil, "vSphere versions that every driver must support: 8.0.3, 7.0U3 or a list")
	fl.StringArrayVar(&f.releases, "release", nil, "take this release: DRIVER@VERSION such as csi@3.5.1 (repeatable)")
	fl.StringVar(&f.operator, "operator", "", "take VDO's own operator as well: its image, with a version as tag; its install manifests come from this program")
	fl.StringVar(&f.platform, "platform", "all", "platform to take: OS/ARCH such as linux/amd64, or all")
}

func (f *flags) matrixFlags(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.matrix, "matrix", "", "compatibility matrix to use, with its signature in FILE.sig (default: built in)")
	f.matrixTrustFlags(cmd)
	fl.BoolVar(&f.allowExpired, "allow-expired", false, "accept a matrix that has expired")
}

// matrixTrustFlags say whose signature the matrix needs.
func (f *flags) matrixTrustFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.matrixKey, "matrix-key", "", "public key that must have signed the matrix")
	cmd.Flags().StringVar(&f.matrixPolicy, "matrix-policy", "", "trust policy file that the matrix's signatures must satisfy")
}

// sourceFlags say where upstream files and images are fetched from.
func (f *flags) sourceFlags(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVar(&f.sourceMap, "source-map", nil, "fetch images of HOST[/PATH] from elsewhere: HOST[/PATH]=HOST[/PATH] (repeatable)")
	fl.StringVar(&f.manifestDir, "manifest-dir", "", "take manifests from this folder, by sha256, before asking their URL")
}

// registryFlags say how registries are spoken to.
func (f *flags) registryFlags(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.caFile, "ca-file", "", "PEM file of certificate authorities to trust besides the system's")
	fl.StringArrayVar(&f.plainHTTP, "plain-http", nil, "speak HTTP without TLS to this HOST[:PORT] (repeatable)")
	fl.IntVar(&f.concurrency, "concurrency", 6, "large blobs at a time, for each host; of small things up to 16 times as many")
	fl.IntVar(&f.retries, "retries", 5, "how often a request is made again that failed for a passing reason")
	fl.DurationVar(&f.timeout, "timeout", time.Minute, "how long a host may be silent, or send less than 64 bytes a second, before a request is made again")
	fl.StringVar(&f.rateLimit, "rate-limit", "", "bytes a second that all transfers together may take: 10MB, 500KiB")
	fl.IntVar(&f.ranges, "ranges", 1, "read blobs of 64 MiB and more over this many connections, for hosts that hold each one back")
	fl.StringVar(&f.clientCert, "client-cert", "", "PEM file of the certificate to show to registries that ask for one")
	fl.StringVar(&f.clientKey, "client-key", "", "PEM file of that certificate's private key")
	fl.StringVar(&f.registries, "registry-config", "", "YAML file with settings of single hosts, also those of upstream manifests: CA, client certificate, mirror, …")
}

// targetFlags say how a bundle is written to where it goes.
func (f *flags) targetFlags(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVar(&f.dryRun, "dry-run", false, "write nothing, and tell what would be moved")
	fl.StringVar(&f.chunkSize, "chunk-size", "", "send larger blobs in parts of this size: 50MB, 16MiB (default: where a whole blob is refused)")
	fl.BoolVar(&f.omitRefused, "omit-refused", false, "push without the signatures and other attachments that the registry does not take, and name them")
	fl.BoolVar(&f.checkAll, "check-all", false, "ask the registry for every part, even where an earlier push has noted that all is there")
}

// trustFlags say whose signatures are needed.
func (f *flags) trustFlags(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVar(&f.keys, "key", nil, "public key that must have signed the bundle; of several, one is enough (repeatable)")
	fl.StringVar(&f.policy, "policy", "", "trust policy file, for several keys and a threshold")
}

// choice is a flag with a fixed set of values.
type choice struct {
	to *string
	of []string
}

func (c *choice) String() string {
	if c.to == nil {
		return ""
	}
	return *c.to
}

func (c *choice) Type() string { return strings.Join(c.of, "|") }

func (c *choice) Set(s string) error {
	if !slices.Contains(c.of, s) {
		return fmt.Errorf("it is none of %s", strings.Join(c.of, ", "))
	}
	*c.to = s
	return nil
}

// badFlag is the error of a value that cannot be understood.
func badFlag(flag, value string, err error, hint string) error {
	if h := fault.HintOf(err); h != "" {
		hint = h
	}
	var f *fault.Error
	if errors.As(err, &f) && f.Err != nil {
		err = f.Err
	}
	return &fault.Error{
		Reason: fault.InvalidInput, Op: "read flag", Subject: fmt.Sprintf("%s %q", flag, value), Err: err, Hint: hint,
	}
}

// request reads the selection flags, and reports all that is wrong with them.
func (f *flags) request() (catalog.Request, image.Platform, error) {
	var req catalog.Request
	var problems []error
	for _, s := range f.drivers {
		d, err := driver(s)
		if err != nil {
			problems = append(problems, badFlag("--drivers", s, err, "take some of cpi, csi, cni, snapshot"))
		}
		req.Drivers = append(req.Drivers, d)
	}
	for _, s := range f.kubernetes {
		minors, err := minors(s)
		if err != nil {
			problems = append(problems, badFlag("--k8s", s, err, "write 1.33, a range 1.32-1.34, or a list 1.31,1.33"))
		}
		req.Kubernetes = append(req.Kubernetes, minors...)
	}
	for _, s := range f.vSphere {
		v, err := matrix.ParseVSphere(s)
		if err != nil {
			problems = append(problems, badFlag("--vsphere", s, err, "write 8.0.3 or 8.0U3"))
		}
		req.VSphere = append(req.VSphere, v)
	}
	for _, s := range f.releases {
		id, err := matrix.ParseReleaseID(s)
		if err != nil {
			problems = append(problems, badFlag("--release", s, err, "write DRIVER@VERSION such as csi@3.5.1"))
		}
		req.Releases = append(req.Releases, id)
	}
	platform, err := image.ParsePlatform(f.platform)
	if err != nil {
		problems = append(problems, badFlag("--platform", f.platform, errors.New("it is no platform"), fault.HintOf(err)))
	}
	return req, platform, fault.Join(problems...)
}

func driver(s string) (matrix.Driver, error) {
	if s == "snapshot" {
		return matrix.SnapshotController, nil
	}
	return matrix.ParseDriver(s)
}

const maxMinors = 100 // of one range

// minors reads 1.33 or 1.32-1.34.
func minors(s string) ([]matrix.Minor, error) {
	first, last, isRange := strings.Cut(s, "-")
	from, err := minor(first)
	if err != nil || !isRange {
		return []matrix.Minor{from}, err
	}
	to, err := minor(last)
	if err != nil {
		return nil, err
	}
	var out []matrix.Minor
	for m := from; m.Compare(to) <= 0; m = m.Next() {
		if len(out) == maxMinors {
			return nil, fmt.Errorf("the range has more than %d versions", maxMinors)
		}
		out = append(out, m)
	}
	if len(out) == 0 {
		return nil, errors.New("the range ends before it starts")
	}
	return out, nil
}

func minor(s string) (matrix.Minor, error) {
	v, err := matrix.ParseKubernetes(s)
	return v.Minor(), err
}

// selects tells whether a selection flag was given: it contradicts --lock.
func selects(cmd *cobra.Command) (flag string, ok bool) {
	for _, name := range []string{"drivers", "k8s", "vsphere", "release", "operator", "platform"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			return "--" + name, true
		}
	}
	return "", false
}
