package cli

import (
	"cmp"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

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
	rows, err1 := minors(k8s)
	columns, err2 := vCenters(vSphere)
	chosen, err3 := perDriver("--select", policy, parseRule)
	if err := fault.Join(err1, err2, err3); err != nil {
		return err
	}
	doc, err := c.loadMatrix("--matrix", file)
	if err != nil {
		return err
	}
	options := matrix.GridOptions{Kubernetes: rows, Policy: matrix.Policy{Rules: chosen, Refused: doc.Unlisted()}} // as resolve and lock choose
	for _, v := range columns {
		options.VSphere = append(options.VSphere, v.Version)
	}
	grid := matrix.NewGrid(doc, options)
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
-  no release fits: see "matrix resolve" for why
+  a column holds up to the version of the next

services of tenant clusters, with "lock --services sip":`
