package cli

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

func newMatrixCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Show, ask, extend and sign the compatibility matrix",
		Long: `The compatibility matrix says which release of which driver fits which
Kubernetes and which vSphere. One is built in; --matrix FILE uses another.`,
		Args: flags.OnlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newMatrixShowCommand(a), newMatrixResolveCommand(a), newMatrixSignCommand(a),
		newMatrixExportCommand(a), newMatrixDiffCommand(a), newMatrixAddCommand(a),
	)
	return cmd
}

// loadMatrix reads the document that a flag or argument names, or the built-in one.
func (c *common) loadMatrix(flag, file string) (doc *matrix.Document, err error) {
	data := matrix.Default()
	if file != "" {
		if data, err = userfile.Read(flag, file, matrix.MaxSize); err != nil {
			return nil, err
		}
	}
	name := cmp.Or(file, matrix.DefaultName)
	if doc, err = matrix.Parse(name, data); err != nil {
		return nil, err
	}
	if !c.now().Before(doc.Expires) {
		c.say("warning: the matrix %s expired on %s", name, doc.Expires.Format(time.DateOnly))
	}
	return doc, nil
}

func matrixFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("matrix", "", "compatibility matrix in `FILE` (default: the one that is built in)")
}

// matrixSignOptions are the flags of `matrix sign`.
type matrixSignOptions struct {
	common
	signingFlags
}

func newMatrixSignCommand(a *app) *cobra.Command {
	o := &matrixSignOptions{common: common{app: a}}
	cmd := &cobra.Command{
		Use:   "sign FILE --key KEY",
		Short: "Sign a matrix document",
		Long: `Checks a matrix document and writes its signature to FILE.sig, as
cosign sign-blob does; with --certificate it is a sigstore bundle, which has room
for that. Keys, certificates and passwords are those of vdo-bundle sign.`,
		Example: `  vdo-bundle matrix sign matrix.yaml --key release.key
  cosign verify-blob --key release.pub --signature matrix.yaml.sig matrix.yaml
  vdo-bundle matrix sign matrix.yaml --key signer.key --certificate signer.crt --certificate-chain issuing-ca.crt`,
		Args: flags.Exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.bindReplace(cmd, "a signature that is there already")
	o.signingFlags.bind(cmd, "key", signingKeyHelp, &o.registryFlags)
	flags.Group(cmd, flags.Registries, func(fl *pflag.FlagSet) { o.bindCA(fl, ", for --timestamp-server") })
	flags.Group(cmd, flags.Tuning, func(fl *pflag.FlagSet) {
		o.bindPatience(fl, "how often (`N`) the time-stamping authority is asked again that failed for a passing reason",
			"how long (`DURATION`) it may be silent before it is asked again")
	})
	return cmd
}

func (o *matrixSignOptions) run(cmd *cobra.Command, file string) error {
	data, err := userfile.Read("FILE", file, matrix.MaxSize)
	if err != nil {
		return err
	}
	if _, err := matrix.Parse(file, data); err != nil { // what is wrong is not signed
		return err
	}
	if err := o.checkPatience(); err != nil {
		return err
	}
	s, err := o.signer(cmd.Context(), o.app)
	switch {
	case err != nil:
		return err
	case s == nil:
		return flags.Missing(cmd, "--key KEY")
	}
	signature, err := s.SignBlob(data)
	if err != nil {
		return err
	}
	if err := userfile.Vacant(file+".sig", o.replace); err != nil {
		return err
	}
	if err := userfile.WriteBelow(filepath.Dir(file), filepath.Base(file)+".sig", signature, 0o644); err != nil {
		return err
	}
	return o.print(file + ".sig")
}

func newMatrixShowCommand(a *app) *cobra.Command {
	c := &common{app: a}
	var k8s, vSphere, policy []string
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print which drivers are chosen for each Kubernetes and vSphere",
		Long: `Prints a grid: Kubernetes minors down, vSphere versions across, and in each cell
the releases of cpi and csi that are chosen there.`,
		Example: `  vdo-bundle matrix show
  vdo-bundle matrix show --k8s 1.31-1.34 --vsphere 7.0U3,8.0U3
  vdo-bundle matrix show --matrix matrix.yaml`,
		Args: flags.Exactly(),
	}
	file := matrixFlag(cmd)
	cmd.Flags().StringSliceVar(&k8s, "k8s", nil, "Kubernetes `MINORS`: 1.33, 1.30-1.33 or a list (default all that the matrix covers)")
	cmd.Flags().StringSliceVar(&vSphere, "vsphere", nil, "vSphere `VERSIONS`: 8.0.3, 8.0U3 or a list (default where the choice can change)")
	cmd.Flags().StringSliceVar(&policy, "select", nil, "how a driver is chosen: `DRIVER=RULE` with latest, lts or disabled (repeatable)")
	c.bindFormat(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		return c.showGrid(*file, k8s, vSphere, policy)
	}
	return cmd
}

func (c *common) showGrid(file string, k8s, vSphere, policy []string) error {
	var p flagProblems
	rows := slices.Concat(each(&p, "--k8s", k8s, matrix.ParseMinors, k8sForm)...)
	columns := each(&p, "--vsphere", vSphere, matrix.ParseVSphere, "write 8.0.3 or 8.0U3, or a list of them")
	chosen := parseSelect(&p, policy)
	if err := fault.Join(p...); err != nil {
		return err
	}
	slices.SortFunc(rows, matrix.Minor.Compare)
	doc, err := c.loadMatrix("--matrix", file)
	if err != nil {
		return err
	}
	grid := matrix.NewGrid(doc, matrix.GridOptions{
		Kubernetes: slices.Compact(rows), VSphere: columns, Policy: matrix.Policy{Rules: chosen, Refused: doc.Unlisted()}, // as resolve and lock choose
	})
	name := cmp.Or(file, matrix.DefaultName)
	return c.show(grid, func() error { return printGrid(&printer{w: c.out}, grid, name, doc, len(columns) == 0) })
}

// printGrid prints a grid, whose columns are steps where nobody chose them.
func printGrid(p *printer, grid matrix.Grid, name string, doc *matrix.Document, isStepped bool) error {
	header := []any{"KUBERNETES"}
	for _, v := range grid.VSphere {
		header = append(header, "VSPHERE "+v.String()+map[bool]string{true: "+"}[isStepped])
	}
	t := command.NewTable(header...)
	for _, row := range grid.Rows {
		cells := []any{row.Kubernetes.String()}
		for _, c := range row.Cells {
			cells = append(cells, cellText("cpi", c.CPI)+", "+cellText("csi", c.CSI))
		}
		t.Row(cells...)
	}
	if err := t.Write(p.w); err != nil {
		return err
	}
	p.line("\n%s, serial %d, issued %s, expires %s", name, doc.Serial, doc.Issued.Format(time.DateOnly), doc.Expires.Format(time.DateOnly))
	p.line("%s", legend)
	if isStepped {
		p.line("+  a column holds up to the version of the next")
	}
	if len(doc.Services) > 0 {
		p.line("\nservices of tenant clusters, with \"lock --services sip\":")
	}
	for _, s := range doc.Services {
		p.line("%s %s", s.ReleaseID, s.State)
	}
	return p.err
}

func cellText(driver string, c *matrix.GridChoice) string {
	if c == nil {
		return driver + " -"
	}
	s := driver + "@" + c.Version.String()
	if c.Derived {
		s += "*"
	}
	if c.State == matrix.LTS || c.State == matrix.Deprecated {
		s += " " + string(c.State)
	}
	return s
}

const legend = `*  rests on a derived range, stated by no vendor: see "matrix resolve"
-  no release fits: see "matrix resolve" for why`

// question is what the flags of resolve ask.
type question struct {
	k8s, distribution    string
	vSphere, pin, policy []string
}

func newMatrixResolveCommand(a *app) *cobra.Command {
	c := &common{app: a}
	var q question
	cmd := &cobra.Command{
		Use:   "resolve --k8s VERSION [--vsphere VERSIONS]",
		Short: "Say which releases a site would get, and why",
		Long: `Chooses the releases for one site: the Kubernetes version as its API server
reports it, and the version of every vCenter, all of which have to be in range.
A release whose needs the matrix does not list is not chosen.
If nothing fits, it names every release with the rule that refused it.`,
		Example: `  vdo-bundle matrix resolve --k8s 1.33 --vsphere 8.0.3,7.0.3
  vdo-bundle matrix resolve --k8s v1.33.4+k3s1 --vsphere 8.0U3 --select csi=lts
  vdo-bundle matrix resolve --k8s 1.28 --vsphere 6.7.0+14367737 --pin csi@3.1.2`,
		Args: flags.Exactly(),
	}
	file := matrixFlag(cmd)
	fl := cmd.Flags()
	fl.StringVar(&q.k8s, "k8s", "", "Kubernetes `VERSION` of the API server: 1.33, v1.33.4+k3s1")
	fl.StringSliceVar(&q.vSphere, "vsphere", nil, "`VERSIONS` of each vCenter: 8.0.3, 8.0U3, 6.7.0+BUILD or a list")
	fl.StringSliceVar(&q.pin, "pin", nil, "fix a version: `DRIVER@VERSION` (repeatable)")
	fl.StringSliceVar(&q.policy, "select", nil, "how a driver is chosen: `DRIVER=RULE` with latest, lts or disabled (repeatable)")
	fl.StringVar(&q.distribution, "distribution", "", "Kubernetes distribution `NAME`, such as openshift")
	c.bindFormat(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if q.k8s == "" {
			return flags.Missing(cmd, "--k8s VERSION")
		}
		return c.answer(*file, q)
	}
	return cmd
}

func (c *common) answer(file string, q question) error {
	facts, pins, policy, err := q.read()
	if err != nil {
		return err
	}
	doc, err := c.loadMatrix("--matrix", file)
	if err != nil {
		return err
	}
	policy.Refused = doc.Unlisted() // as the operator refuses them
	chosen, refusal := matrix.Resolve(doc, facts, pins, policy, nil)
	err = c.show(answerOf(facts, chosen, refusal), func() error { return c.printSelection(chosen) })
	if err != nil || refusal == nil {
		return err
	}
	f := refusal.Fault()
	f.Err = errors.New(strings.Join(refusal.Lines(), "\n"))
	return f
}

// read reads the flags, and reports all that are wrong.
func (q question) read() (matrix.Facts, matrix.Pins, matrix.Policy, error) {
	var p flagProblems
	facts, policy := matrix.Facts{Distribution: q.distribution}, matrix.Policy{Rules: parseSelect(&p, q.policy)}
	var err error
	if facts.Kubernetes, err = matrix.ParseKubernetes(q.k8s); err != nil {
		p = append(p, flags.Bad("--k8s", q.k8s, err, "write 1.33 or v1.33.4"))
	}
	facts.VCenters = each(&p, "--vsphere", q.vSphere, vCenter, vSphereForm)
	pins := perDriver(&p, "--pin", q.pin, parsePin, "write DRIVER@VERSION such as csi@3.5.1, once for a driver")
	return facts, pins, policy, fault.Join(p...)
}

func (c *common) printSelection(s matrix.Selection) error {
	for _, warning := range s.Warnings {
		c.say("warning: %s", warning)
	}
	p := &printer{w: c.out}
	for _, choice := range s.Choices {
		p.line("%s\n  %s", choice.Release.ReleaseID, strings.Join(choice.Reasons, "\n  "))
	}
	return p.err
}

// answerOf is what --format json prints.
func answerOf(facts matrix.Facts, s matrix.Selection, refusal *matrix.Refusal) map[string]any {
	choices, warnings, rejections := []any{}, []any{}, []any{}
	for _, c := range s.Choices {
		r := c.Release
		choices = append(choices, map[string]any{"driver": r.Driver, "version": r.Version, "state": r.State, "reasons": c.Reasons})
	}
	for _, w := range s.Warnings {
		warnings = append(warnings, map[string]any{"code": w.Code, "release": w.Release.String(), "text": w.Text})
	}
	out := map[string]any{
		"kubernetes": facts.Kubernetes, "vcenters": append([]matrix.VCenter{}, facts.VCenters...),
		"choices": choices, "warnings": warnings,
	}
	if refusal != nil {
		for _, r := range refusal.Rejections {
			rejections = append(rejections, map[string]any{"release": r.Release.String(), "rule": r.Rule, "detail": r.Detail})
		}
		out["refused"], out["rejections"] = refusal.Drivers, rejections
	}
	return out
}

// Forms of flags, as hints show them.
const (
	k8sForm     = "write 1.33, a range 1.30-1.33, or a list 1.31,1.33"
	vSphereForm = "write 8.0.3, 8.0U3 or 6.7.0+BUILD, or a list of them"
)

// vCenter reads 8.0.3, 7.0U3 and 6.7.0+14367737, where the part after the plus is the build.
func vCenter(value string) (v matrix.VCenter, err error) {
	version, build, built := strings.Cut(value, "+")
	if built {
		if v.Build, err = strconv.ParseUint(build, 10, 53); err != nil {
			return v, fmt.Errorf("the build %q is not a number", build)
		}
	}
	v.Version, err = matrix.ParseVSphere(version)
	return v, err
}

// perDriver reads values of a flag such as csi@3.5.1 and csi=lts, one for a driver.
func perDriver[T comparable](
	p *flagProblems, flag string, values []string, parse func(string) (matrix.Driver, T, error), hint string,
) map[matrix.Driver]T {
	var none T
	out := map[matrix.Driver]T{}
	for _, value := range values {
		driver, v, err := parse(value)
		if err == nil && out[driver] != none {
			err = fmt.Errorf("%s is given twice", driver)
		}
		if err != nil {
			*p = append(*p, flags.Bad(flag, value, err, hint))
			continue
		}
		out[driver] = v
	}
	return out
}

// parseSelect reads --select.
func parseSelect(p *flagProblems, values []string) map[matrix.Driver]matrix.Rule {
	return perDriver(p, "--select", values, parseRule, "write DRIVER=RULE such as csi=lts, once for a driver")
}

func parsePin(value string) (matrix.Driver, matrix.Version, error) {
	id, err := matrix.ParseReleaseID(value)
	return id.Driver, id.Version, err
}

func parseRule(value string) (matrix.Driver, matrix.Rule, error) {
	name, word, found := strings.Cut(value, "=")
	if !found {
		return "", "", fmt.Errorf("write it as DRIVER=RULE, such as csi=lts")
	}
	driver, err := matrix.ParseDriver(name)
	if err != nil {
		return "", "", err
	}
	switch rule := matrix.Rule(word); rule {
	case matrix.Latest, matrix.PreferLT, matrix.Disabled:
		return driver, rule, nil
	}
	return "", "", fmt.Errorf("%q is not one of latest, lts, disabled", word)
}
