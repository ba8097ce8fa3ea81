package matrixcmd

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// summary is what lint says of a document without faults.
type summary struct {
	File      string                `json:"file"`
	Serial    int64                 `json:"serial"`
	Issued    time.Time             `json:"issued"`
	Expires   time.Time             `json:"expires"`
	Expired   bool                  `json:"expired"`
	Releases  int                   `json:"releases"`
	ByDriver  map[matrix.Driver]int `json:"byDriver"`
	ByState   map[matrix.State]int  `json:"byState"`
	Manifests int                   `json:"manifests"`
}

func (w IO) lint() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "lint FILE",
		Short:   "Check a matrix document",
		Long:    `Checks a matrix document and names every problem with its file, line and key.`,
		Example: `  vdo-bundle matrix lint matrix.yaml`,
		Args:    flags.Exactly("FILE"),
	}
	w.formatFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		doc, _, err := w.load("FILE", args[0])
		if err != nil {
			return err
		}
		s := w.summarise(args[0], doc)
		if w.json() {
			return w.printJSON(s)
		}
		return command.Say(w.Out, "%s: valid, serial %d, issued %s, expires %s, %d releases with %d manifests",
			s.File, s.Serial, s.Issued.Format(time.DateOnly), s.Expires.Format(time.DateOnly), s.Releases, s.Manifests)
	}
	return cmd
}

func (w IO) summarise(file string, doc *matrix.Document) summary {
	s := summary{
		File: file, Serial: doc.Serial, Issued: doc.Issued, Expires: doc.Expires, Expired: !w.Now().Before(doc.Expires),
		Releases: len(doc.Releases), ByDriver: map[matrix.Driver]int{}, ByState: map[matrix.State]int{},
	}
	for _, r := range doc.Releases {
		s.ByDriver[r.Driver]++
		s.ByState[r.State]++
		s.Manifests += len(r.Manifests)
	}
	return s
}
