package cli

import (
	"bytes"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
)

// outputNames are the flags that name what a command writes.
var outputNames = []string{"output", "receipt"}

// checkOutputs refuses, before a command does anything, to write over what it reads, and
// over a key or a bundle: they may be the only copy. pull, copy and export are told to
// replace a bundle.
func checkOutputs(cmd *cobra.Command, args []string) error {
	switch cmd.Name() {
	case "keygen", "mirror-config", "split":
		return nil // they write several files, and look themselves
	case "copy":
		if len(args) < 2 {
			return nil // cobra says so
		}
		return checkArchive(cmd, "DEST", args[1], args[:1])
	}
	for _, name := range outputNames {
		f := cmd.Flags().Lookup(name)
		if f == nil || !f.Changed || f.Value.String() == "-" {
			continue
		}
		flag := "--" + name
		if f.Shorthand != "" {
			flag = "-" + f.Shorthand
		}
		check := checkText
		if name == "output" && (cmd.Name() == "pull" || cmd.Name() == "export") {
			check = checkArchive
		}
		if err := check(cmd, flag, f.Value.String(), args); err != nil {
			return err
		}
	}
	return nil
}

func checkText(cmd *cobra.Command, flag, to string, args []string) error {
	return userfile.Free(flag, to, userfile.IsText, inputs(cmd, args)...)
}

// checkArchive is for bundles; folders, registries and parts have their own rules.
func checkArchive(cmd *cobra.Command, flag, to string, args []string) error {
	p, err := parsePlace(to)
	if volumes := cmd.Flag("volume-size"); err != nil || p.medium != inFile || volumes != nil && volumes.Changed {
		return nil //nolint:nilerr // the command says what is wrong with its place
	}
	in := inputs(cmd, args)
	if err := userfile.Free(flag, to+parts.Suffix, userfile.IsParts, in...); err != nil {
		return err // an archive takes the place of the parts of its name
	}
	return userfile.Free(flag, to, isBundle, in...)
}

func isBundle(head []byte) bool { return bytes.HasPrefix(head, []byte("oci-layout\x00")) }

// isMirrorConfig reports whether a file begins as those of mirror-config do: others, such as
// a hand-made registries.yaml, have entries that would be lost.
func isMirrorConfig(head []byte) bool {
	first, _, _ := bytes.Cut(head, []byte("\n"))
	return bytes.HasPrefix(first, []byte("# Images ")) || bytes.HasPrefix(first, []byte("# /etc/rancher/k3s/registries.yaml, or "))
}

// inputs are the files that a command is given by its arguments and flags: what of it is
// no file is no file that could be written over.
func inputs(cmd *cobra.Command, args []string) []string {
	out := slices.Clone(args)
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if slices.Contains(outputNames, f.Name) {
			return
		}
		if many, ok := f.Value.(pflag.SliceValue); ok {
			out = append(out, many.GetSlice()...)
			return
		}
		if f.Value.Type() == "string" { // not a number, nor one of a fixed set of words
			out = append(out, f.Value.String())
		}
	})
	for i, s := range out { // FILE.tar stands for its parts as well
		if _, err := os.Stat(s); err != nil {
			out[i] = s + parts.Suffix
		}
	}
	return slices.DeleteFunc(out, func(s string) bool {
		_, err := os.Stat(s)
		return strings.TrimSpace(s) == "" || err != nil
	})
}
