package cli

import (
	"bytes"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
)

// outputNames are the flags that name what a command writes.
var outputNames = []string{"output", "receipt"}

// checkOutputs refuses, before a command does anything, to write over what it reads, and
// over a key or a bundle: they may be the only copy. pull is told to replace a bundle.
func checkOutputs(cmd *cobra.Command, args []string) error {
	if slices.Contains([]string{"keygen", "mirror-config", "split"}, cmd.Name()) {
		return nil // they write several files, and look themselves
	}
	pull, inputs, replaces := cmd.Name() == "pull", inputs(cmd, args), userfile.IsText
	if pull {
		replaces = isBundle
	}
	for _, name := range outputNames {
		f := cmd.Flags().Lookup(name)
		if f == nil || !f.Changed || f.Value.String() == "-" {
			continue
		}
		to := f.Value.String()
		if p, err := parsePlace(to); pull && (err != nil || p.medium != inFile || cmd.Flag("volume-size").Changed) {
			continue // folders, registries and parts have their own rules
		}
		flag := "--" + name
		if f.Shorthand != "" {
			flag = "-" + f.Shorthand
		}
		if err := userfile.Free(flag, to, replaces, inputs...); err != nil {
			return err
		}
	}
	return nil
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
	return slices.DeleteFunc(out, func(s string) bool {
		_, err := os.Stat(s)
		return strings.TrimSpace(s) == "" || err != nil
	})
}
