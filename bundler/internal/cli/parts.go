package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/archive"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
)

// minVolume is the least size of a part, in bytes: a mistyped unit should not make thousands.
const minVolume = 64 << 10

func (f *outputFlags) bindVolumes(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.Var((*size.Bytes)(&f.archive.VolumeSize), "volume-size", "split the archive into parts of this size, such as 4GB (FAT32 holds up to 4294967295)")
	fl.IntVar(&f.archive.Recovery, "parity", 0, "add `N` parity shards: as many lost or damaged parts can be rebuilt by vdo-bundle repair")
}

// checkVolumes refuses invalid combinations of flags and target.
func (f *outputFlags) checkVolumes(cmd *cobra.Command, dest location) error {
	isSplit := cmd.Flags().Changed("volume-size")
	volume, parity := fmt.Sprint(f.archive.VolumeSize), fmt.Sprint(f.archive.Recovery)
	switch {
	case !isSplit && cmd.Flags().Changed("parity"):
		return flags.Bad("--parity", parity, errors.New("missing required flag --volume-size"),
			"say how large the parts are: --volume-size 4GB")
	case !isSplit:
		return nil
	case dest.store != inFile:
		return flags.Bad("--volume-size", volume, fmt.Errorf("%s is not a file", dest), "only archives are split: -o FILE.tar")
	case f.archive.VolumeSize < minVolume:
		return flags.Bad("--volume-size", volume, fmt.Errorf("less than %d bytes", minVolume), "write the unit: 4GB, 650MB")
	}
	return bounded("--parity", f.archive.Recovery, 0, parts.MaxShards-1, "1 or 2 is a good value")
}

// apart refuses to write where the command reads: the same file or directory, or the same archive in parts, which are
// deleted once the new one is complete.
func apart(dest, src location) error {
	if dest.store != src.store || dest.store == inRegistry {
		return nil
	}
	for _, to := range namesOf(dest.path) {
		for _, from := range namesOf(src.path) {
			written, err := os.Stat(to)
			read, missing := os.Stat(from)
			if to == from || (err == nil && missing == nil && os.SameFile(written, read)) {
				return fault.Errorf(fault.Conflict, "write", dest.String(), "choose another name",
					"this command reads it")
			}
		}
	}
	return nil
}

// namesOf returns the names of an archive as one file and in parts.
func namesOf(path string) []string {
	path = strings.TrimSuffix(filepath.Clean(path), parts.Suffix)
	return []string{path, path + parts.Suffix}
}

// inParts returns the parts file if the archive is split.
func (f *outputFlags) inParts(p location) location {
	if f.archive.VolumeSize > 0 && p.store == inFile {
		p.path += parts.Suffix
	}
	return p
}

func newSplitCommand(a *app) *cobra.Command {
	o := &common{app: a}
	cmd := &cobra.Command{
		Use:   "split FILE.tar --volume-size SIZE",
		Short: "Split an archive into parts for smaller media",
		Long: `split copies an archive into parts: FILE.tar.001 and so on, plain byte ranges that
"cat FILE.tar.[0-9]*" joins. FILE.tar.parts lists them with their sha256 ("sha256sum -c"
reads it). All commands but sign take FILE.tar.parts for the bundle, or FILE.tar if only the
parts exist. With --parity N, repair can rebuild any N lost or damaged parts. The archive
itself stays. The bundle's signature covers every part. pull --volume-size writes parts at
once.`,
		Example: `  vdo-bundle split drivers.tar --volume-size 4GB --parity 1
  vdo-bundle split drivers.tar --volume-size 650MB -o /media/usb/drivers.tar`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.split(cmd, args[0]) },
	}
	o.bindVolumes(cmd)
	cmd.Flags().StringVarP(&o.dest, "output", "o", "", "`FILE` that the parts begin with (default FILE.tar)")
	return with(cmd, o.bindTarget, o.bindFormat)
}

func (c *common) split(cmd *cobra.Command, src string) error {
	from, err := fileLocation(src)
	dest, destErr := fileLocation(cmp.Or(c.dest, strings.TrimSuffix(src, parts.Suffix)))
	if err := fault.Distinct(fault.Join(err, destErr)); err != nil {
		return err
	}
	if err := c.checkVolumes(cmd, dest); err != nil {
		return err
	}
	name, err := archive.Split(cmd.Context(), from.path, dest.path, c.archive)
	if err != nil {
		return err
	}
	return c.show(map[string]string{"parts": name}, func(p *printer) { p.print(name) })
}

func newRepairCommand(a *app) *cobra.Command {
	o := &common{app: a}
	return with(&cobra.Command{
		Use:   "repair FILE.tar.parts",
		Short: "Check the parts of an archive, and rebuild bad ones",
		Long: `repair compares all parts of an archive, and its parity shards, with the sha256 in the parts
file. It names missing or damaged ones, and rebuilds as many as there are parity shards. A
rebuilt part gets its name only once its sha256 is right. verify only checks.`,
		Example: `  vdo-bundle repair drivers.tar.parts`,
		RunE:    func(cmd *cobra.Command, args []string) error { return o.repair(cmd.Context(), args[0]) },
	}, o.bindFormat)
}

func (c *common) repair(ctx context.Context, src string) error {
	p, err := fileLocation(src)
	if err != nil {
		return err
	}
	r, err := archive.Repair(ctx, p.path)
	if err != nil {
		return err
	}
	if r.Damaged == nil {
		r.Damaged = []archive.PartDamage{}
	}
	return c.show(r, func(p *printer) {
		for _, d := range r.Damaged {
			p.print(filepath.Base(d.Part), "rebuilt:", d.Why)
		}
		if len(r.Damaged) == 0 {
			p.print("all", r.Parts, "parts are as they were")
		}
	})
}
