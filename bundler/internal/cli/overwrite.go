package cli

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
)

// outputNames are the flags that name what a command writes.
var outputNames = []string{"output", "receipt"}

// bindForce binds --force to each command that names a file to write, unless the command
// has a rule of its own: keygen never replaces a key, pull and split have --replace.
func bindForce(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		bindForce(c)
	}
	writes := slices.ContainsFunc(outputNames, func(name string) bool { return cmd.Flags().Lookup(name) != nil })
	if writes && cmd.Name() != "keygen" && cmd.Flags().Lookup("replace") == nil {
		cmd.Flags().Bool("force", false, "replace files that exist")
	}
}

// isSet reports whether a command has a boolean flag and it is true.
func isSet(cmd *cobra.Command, flag string) bool {
	f := cmd.Flags().Lookup(flag)
	return f != nil && f.Value.String() == "true"
}

// checkOutputs refuses, before a command does anything, to write over a file that it
// reads, or without --force over another one. A folder of mirror-config and the parts and
// bundles of pull and split are checked where they are written.
func checkOutputs(cmd *cobra.Command, args []string) error {
	replace := isSet(cmd, "replace") && cmd.Name() == "pull" && cmd.Flag("volume-size").Value.String() == ""
	if (cmd.Flags().Lookup("force") == nil || cmd.Name() == "mirror-config") && !replace {
		return nil
	}
	inputs := inputs(cmd, args)
	for _, name := range outputNames {
		f := cmd.Flags().Lookup(name)
		if f == nil || !f.Changed || f.Value.String() == "-" {
			continue
		}
		to := f.Value.String()
		if p, err := parsePlace(to); cmd.Name() == "pull" && (err != nil || p.medium != inFile) {
			continue // a folder and a registry have their own rules
		}
		flag := "--" + name
		if f.Shorthand != "" {
			flag = "-" + f.Shorthand
		}
		if err := userfile.Free(flag, to, replace || isSet(cmd, "force"), inputs...); err != nil {
			return err
		}
	}
	return nil
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
