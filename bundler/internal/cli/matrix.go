package cli

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

func newMatrixCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Show, extend and sign the compatibility matrix",
		Long: `The compatibility matrix says which release of which driver fits which
Kubernetes and which vSphere. One is built in; --matrix FILE uses another.`,
		Args: flags.OnlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newMatrixShowCommand(a), newMatrixSignCommand(a),
		newMatrixExportCommand(a), newMatrixDiffCommand(a), newMatrixAddCommand(a),
	)
	return cmd
}

// loadMatrix reads the matrix of a flag or argument, or the built-in one.
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
	c.warnExpired(name, doc)
	return doc, nil
}

func (c *common) warnExpired(name string, doc *matrix.Document) {
	if !time.Now().Before(doc.Expires) {
		c.say("warning: the matrix %s expired on %s", name, doc.Expires.Format(time.DateOnly))
	}
}

type matrixSignOptions struct {
	common
	signingFlags

	add bool
}

func newMatrixSignCommand(a *app) *cobra.Command {
	o := &matrixSignOptions{common: common{app: a}}
	cmd := &cobra.Command{
		Use:   "sign FILE --key KEY",
		Short: "Sign a matrix document",
		Long: `Checks a matrix document and writes its signature to FILE.sig, as
cosign sign-blob does; with --certificate it is a sigstore bundle, which has room
for that. --add keeps the signatures of other keys. Keys, certificates and
passwords are those of vdo-bundle sign.`,
		Example: `  vdo-bundle matrix sign matrix.yaml --key release.key
  cosign verify-blob --insecure-ignore-tlog=true --key release.pub --signature matrix.yaml.sig matrix.yaml
  vdo-bundle matrix sign matrix.yaml --key signer.key --certificate signer.crt --certificate-chain issuing-ca.crt`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.bindReplace(cmd, "all signatures that are there already")
	cmd.Flags().BoolVar(&o.add, "add", false, "keep those that are there; after an edit, use --replace")
	o.signingFlags.bind(cmd, "key", signingKeyHelp, &o.common)
	flags.Group(cmd, flags.Registries, o.bindCA) // of the TSA
	flags.Group(cmd, flags.Tuning, o.bindRequests)
	return cmd
}

func (o *matrixSignOptions) run(cmd *cobra.Command, file string) error {
	data, err := userfile.Read("FILE", file, matrix.MaxSize)
	if err != nil {
		return err
	}
	if _, err := matrix.Parse(file, data); err != nil { // never sign an invalid matrix
		return err
	}
	if err := o.checkPatience(); err != nil {
		return err
	}
	existing, err := o.existing(file + ".sig") // before the key's password
	if err != nil {
		return err
	}
	s, err := o.signer(cmd.Context())
	if err != nil {
		return err
	}
	signature, err := s.SignBlob(data)
	if err == nil && len(existing) > 0 {
		signature, err = o.appended(file+".sig", data, existing, signature, s)
	}
	if err != nil {
		return err
	}
	if err := userfile.WriteBelow(filepath.Dir(file), filepath.Base(file)+".sig", signature, 0o644); err != nil {
		return err
	}
	return o.print(file + ".sig")
}

const dropHint = "replace all that is in it with --replace"

// existing returns the signatures to add to. It refuses a file that must not be written.
func (o *matrixSignOptions) existing(name string) ([]byte, error) {
	switch {
	case o.archive.Replace && o.add:
		return nil, flags.Bad("--add", "", errors.New("--replace is given as well"), "give one of both")
	case o.archive.Replace:
		return nil, nil
	}
	existing, err := userfile.Read("FILE", name, bundle.MaxSignature)
	switch {
	case fault.ReasonOf(err) == fault.NotFound:
		return nil, nil
	case err == nil && len(existing) > 0 && !o.add:
		return nil, fault.Errorf(fault.Conflict, "write", name,
			dropHint+", or keep the signatures of other keys of the same text with --add", "it is there already")
	}
	for line := range bytes.Lines(existing) {
		line = bytes.TrimSpace(line)
		raw, err := base64.StdEncoding.DecodeString(string(line))
		if !json.Valid(line) && (err != nil || len(raw) < ed25519.SignatureSize) {
			return nil, fault.Errorf(fault.Conflict, "write", name, dropHint, "it is there already, and holds more than signatures")
		}
	}
	return existing, err
}

// appended returns the existing signatures with the signer's on a line of its own. A signer counts once.
func (o *matrixSignOptions) appended(name string, data, existing, signature []byte, s *trust.Signer) ([]byte, error) {
	policy, err := s.Policy()
	if err != nil {
		return nil, err
	}
	if _, err := policy.VerifyBlob(data, existing, time.Now()); err == nil {
		return nil, fault.Errorf(fault.Conflict, "write", name, dropHint, "it has a signature of this key already")
	}
	all := slices.Concat(bytes.TrimSpace(existing), []byte("\n"), signature)
	if _, err := policy.VerifyBlob(data, all, time.Now()); err != nil || len(all) > bundle.MaxSignature {
		return nil, fault.Errorf(fault.Conflict, "write", name, "drop the others with --replace",
			"it would have more signatures than readers take")
	}
	o.say("added to the signatures in %s; --replace drops the others", name)
	return all, nil
}

func newMatrixShowCommand(a *app) *cobra.Command {
	c := &common{app: a}
	var k8s, vSphere []string
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the chosen drivers per Kubernetes and vSphere",
		Long: `Prints a grid: Kubernetes minors down, vSphere versions across, and in each cell
the releases of cpi and csi that are chosen there.`,
		Example: `  vdo-bundle matrix show
  vdo-bundle matrix show --k8s 1.31-1.34 --vsphere 7.0U3,8.0U3
  vdo-bundle matrix show --matrix matrix.yaml`,
	}
	file := cmd.Flags().String("matrix", "", "compatibility matrix in `FILE` (default: the one that is built in)")
	cmd.Flags().StringSliceVar(&k8s, "k8s", nil, "Kubernetes `MINORS`: 1.33, 1.30-1.33 or a list (default all that the matrix covers)")
	cmd.Flags().StringSliceVar(&vSphere, "vsphere", nil, "vSphere `VERSIONS`: 8.0.3, 8.0U3 or a list (default where the choice can change)")
	c.bindFormat(cmd)
	cmd.RunE = func(*cobra.Command, []string) error { return c.showGrid(*file, k8s, vSphere) }
	return cmd
}

func (c *common) showGrid(file string, k8s, vSphere []string) error {
	var p flagProblems
	rows := slices.Concat(each(&p, "--k8s", k8s, matrix.ParseMinors, k8sForm)...)
	columns := each(&p, "--vsphere", vSphere, matrix.ParseVSphere, "write 8.0.3 or 8.0U3, or a list of them")
	if err := fault.Join(p...); err != nil {
		return err
	}
	slices.SortFunc(rows, matrix.Minor.Compare)
	doc, err := c.loadMatrix("--matrix", file)
	if err != nil {
		return err
	}
	grid := matrix.NewGrid(doc, matrix.GridOptions{
		Kubernetes: slices.Compact(rows), VSphere: columns, Policy: matrix.Policy{Refused: doc.Unlisted()}, // as lock chooses
	})
	name := cmp.Or(file, matrix.DefaultName)
	return c.show(grid, func(p *printer) { p.grid(grid, name, doc, len(columns) == 0) })
}

// grid prints a grid; its columns are steps unless the user chose them.
func (p *printer) grid(grid matrix.Grid, name string, doc *matrix.Document, isStepped bool) {
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
	p.table(t)
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

const legend = `*  rests on a derived range, stated by no vendor
-  no release fits: "lock" says why`

// k8sForm is the hint for the flag --k8s.
const k8sForm = "write 1.33, a range 1.30-1.33, or a list 1.31,1.33"
