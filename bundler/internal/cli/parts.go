package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/archive"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

// bytesFlag is a flag with a number of bytes: 4GB, 650MiB, 4294967295.
type bytesFlag int64

// Type says what the flag takes.
func (*bytesFlag) Type() string { return "SIZE" }

// String writes the number.
func (b *bytesFlag) String() string {
	if *b == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*b), 10)
}

var (
	bytesForm = regexp.MustCompile(`^([0-9]{1,18})(?:\.([0-9]{1,3}))?\s*([kKMGT]?)(i?)B?$`)
	bytesUnit = map[string]int64{"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "ki": 1 << 10, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
)

// Set reads a number with a unit.
func (b *bytesFlag) Set(s string) error {
	m := bytesForm.FindStringSubmatch(s)
	if m == nil {
		return errors.New("it is no size such as 4GB, 4GiB or 650MB")
	}
	unit, ok := bytesUnit[m[3]+m[4]]
	whole, err := strconv.ParseInt(m[1], 10, 64)
	if !ok || err != nil || whole > math.MaxInt64/unit-1 {
		return errors.New("it is no size such as 4GB, 4GiB or 650MB")
	}
	fraction, _ := strconv.ParseInt((m[2] + "000")[:3], 10, 64) // digits
	*b = bytesFlag(whole*unit + fraction*(unit/1000))
	return nil
}

// minVolume keeps a slip of the unit from making a thousand parts, in bytes.
const minVolume = 64 << 10

func (f *flags) volumeFlags(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.Var(&f.volumeSize, "volume-size", "split the archive into parts of this size, such as 4GB (FAT32 holds up to 4294967295)")
	fl.IntVar(&f.parity, "parity", 0, "add so many recovery parts: as many lost or damaged parts can be rebuilt by `vdo-bundle repair`")
}

// checkVolumes refuses what cannot be split, or not so.
func (f *flags) checkVolumes(cmd *cobra.Command, dest place) error {
	if !cmd.Flags().Changed("volume-size") {
		if cmd.Flags().Changed("parity") {
			return badFlag("--parity", strconv.Itoa(f.parity), errors.New("there is no --volume-size"), "say how large the parts are: --volume-size 4GB")
		}
		if dest.medium == inFile && strings.HasSuffix(dest.path, parts.Suffix) {
			return badFlag("-o", dest.path, errors.New("it is the name of a parts file"), "name the archive, FILE.tar, and give --volume-size")
		}
		return nil
	}
	switch {
	case dest.medium != inFile:
		return badFlag("--volume-size", f.volumeSize.String(), fmt.Errorf("%s is no file", dest), "only archives are split: -o FILE.tar")
	case strings.HasSuffix(dest.path, parts.Suffix):
		return badFlag("-o", dest.path, errors.New("it is the name of a parts file"), "name the archive, FILE.tar: the parts are named after it")
	case f.volumeSize < minVolume:
		return badFlag("--volume-size", f.volumeSize.String(), fmt.Errorf("it is less than %d bytes", minVolume), "write the unit: 4GB, 650MB")
	case f.parity < 0 || f.parity >= parts.MaxShards:
		return badFlag("--parity", strconv.Itoa(f.parity), fmt.Errorf("it is not between 0 and %d", parts.MaxShards-1), "1 or 2 is a good value")
	}
	return nil
}

// inParts names the parts file where the archive was split.
func (f *flags) inParts(p place) place {
	if f.volumeSize > 0 && p.medium == inFile {
		p.path += parts.Suffix
	}
	return p
}

func (a app) splitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "split FILE.tar --volume-size SIZE",
		Short: "Split an archive into parts for smaller media",
		Long: `split writes an archive again as parts: FILE.tar.001 and so on, plain byte ranges
that "cat FILE.tar.[0-9]*" joins again, and FILE.tar.parts, which lists them with
their sha256 ("sha256sum -c" reads it). All commands take FILE.tar.parts for the
bundle, or FILE.tar where only the parts are there. With --parity N any N lost or
damaged parts can be rebuilt by repair. The archive itself stays.

The parts are not signed by themselves: the bundle's signature covers the root's
digest and by digests every byte of the archive, whatever it was split into.

pull --volume-size makes the parts at once, without an archive to split.`,
		Example: `  vdo-bundle split drivers.tar --volume-size 4GB --parity 1
  vdo-bundle split drivers.tar --volume-size 650MB -o /media/usb/drivers.tar`,
		Args: exactly("FILE.tar"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.split(cmd, args[0]) },
	}
	a.flags.volumeFlags(cmd)
	cmd.Flags().StringVarP(&a.flags.dest, "output", "o", "", "name that the parts begin with (default FILE.tar)")
	cmd.Flags().BoolVar(&a.flags.replace, "replace", false, "replace parts that are there already")
	a.flags.formatFlag(cmd, "")
	return cmd
}

func (a *app) split(cmd *cobra.Command, src string) error {
	if !cmd.Flags().Changed("volume-size") {
		return usage(cmd, "there is no --volume-size SIZE")
	}
	to := a.flags.dest
	if to == "" {
		to = strings.TrimSuffix(src, parts.Suffix)
	}
	from, err := filePlace(src)
	dest, destErr := filePlace(to)
	if a.flags.dest == "" && err != nil {
		destErr = nil // it is the same
	}
	if err := fault.Join(err, destErr); err != nil {
		return err
	}
	if err := a.flags.checkVolumes(cmd, dest); err != nil {
		return err
	}
	o := archive.Options{Replace: a.flags.replace, VolumeSize: int64(a.flags.volumeSize), Recovery: a.flags.parity}
	name, err := archive.Split(cmd.Context(), from.path, dest.path, o)
	if err != nil {
		return err
	}
	if a.flags.format == formatJSON {
		return writeJSON(a.out, map[string]string{"parts": name})
	}
	_, err = fmt.Fprintln(a.out, name)
	return err
}

// filePlace reads a place that has to be a file.
func filePlace(s string) (place, error) {
	p, err := parsePlace(s)
	if err == nil && p.medium != inFile {
		err = &fault.Error{Reason: fault.InvalidInput, Op: "read place", Subject: fmt.Sprintf("%q", s),
			Hint: "name an archive: FILE.tar, or FILE.tar.parts", Err: errors.New("it is no file")}
	}
	return p, err
}

func (a app) repairCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "repair FILE.tar.parts",
		Short: "Check the parts of an archive, and rebuild lost or damaged ones",
		Long: `repair holds all parts of an archive, and its recovery parts, against the sha256
that the parts file lists, names those that are missing or damaged, and rebuilds as
many of them as there are recovery parts. What is rebuilt takes its name only once
its sha256 is right. With --dry-run it only looks.`,
		Example: `  vdo-bundle repair drivers.tar.parts
  vdo-bundle repair drivers.tar.parts --dry-run --format json`,
		Args: exactly("FILE.tar.parts"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.repair(cmd.Context(), args[0]) },
	}
	cmd.Flags().BoolVar(&a.flags.dryRun, "dry-run", false, "only say what is missing or damaged")
	a.flags.formatFlag(cmd, "o")
	return cmd
}

func (a *app) repair(ctx context.Context, src string) error {
	p, err := filePlace(src)
	if err != nil {
		return err
	}
	r, err := archive.Repair(ctx, p.path, a.flags.dryRun)
	if err != nil {
		return err
	}
	if a.flags.format == formatJSON {
		if r.Damaged == nil {
			r.Damaged = []archive.PartDamage{}
		}
		return writeJSON(a.out, r)
	}
	for _, d := range r.Damaged {
		_, _ = fmt.Fprintf(a.out, "%s rebuilt: %s\n", filepath.Base(d.Part), strings.Replace(strings.Replace(d.Why, "it is", "it was", 1), "it has", "it had", 1))
	}
	if len(r.Damaged) == 0 {
		_, err = fmt.Fprintf(a.out, "all %d parts are as they were\n", r.Parts)
	}
	return err
}
