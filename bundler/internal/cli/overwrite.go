package cli

import (
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/inspect"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
)

// outputNames are the flags that name what a command writes.
var outputNames = []string{"output", "receipt"}

// Kinds of files that commands write, by how they begin.
var (
	lockKind       = kind("a lock", `^\s*\{?\s*"?apiVersion"?:\s*"?vdo\.vmware\.com/lock/`)
	receiptKind    = kind("a receipt", `^\{\s*"apiVersion": "vdo\.vmware\.com/receipt/`)
	matrixKind     = kind("a compatibility matrix", `(?m)^kind: CompatibilityMatrix\b`)
	pageKind       = kind("a page about a bundle", `^<!DOCTYPE html>(?s:.{0,600})<title>Driver bundle `)
	inspectionKind = kind("what inspect prints", `^bundle +sha256:`)
	inspectedKind  = kind("what inspect prints as JSON", `^\{\s*"root": "sha256:[0-9a-f]{64}",\s*"bytes": `)
	spdxKind       = kind("a bill of materials in SPDX", `^\{\s*"spdxVersion": `)
	cycloneDXKind  = kind("a bill of materials in CycloneDX", `^\{\s*"bomFormat": "CycloneDX"`)
	manifestsKind  = kind("install manifests of the operator", `^# vdo-operator \S+ of bundle sha256:`)
	mirrorKind     = kind("a mirror configuration that mirror-config wrote", `^# (Images (of|that are named) |/etc/rancher/k3s/registries\.yaml, or )`)
	bundleKind     = kind("a bundle", `^oci-layout\x00`)
)

func kind(name, begins string) userfile.Kind {
	return userfile.Kind{Name: name, Begins: regexp.MustCompile(begins)}
}

// written is the kind of file that a command writes; false where the command itself
// looks at what is there, because it writes several files or is told to replace.
func written(cmd *cobra.Command) (userfile.Kind, bool) {
	value := func(flag string) string {
		if f := cmd.Flags().Lookup(flag); f != nil {
			return f.Value.String()
		}
		return ""
	}
	switch name := cmd.Name(); {
	case name == "lock":
		return lockKind, true
	case name == "push":
		return receiptKind, true
	case name == "import":
		return matrixKind, true
	case name == "install-manifests":
		return manifestsKind, true
	case name == "inspect":
		return inspected(value("format")), true
	case name == "sbom" && value("type") == inspect.SPDX:
		return spdxKind, true
	case name == "sbom":
		return cycloneDXKind, true
	case name == "pull" && value("replace") == "true" && value("volume-size") == "":
		return bundleKind, true
	}
	return userfile.Kind{}, false
}

// inspected is the kind of file that inspect writes in a format.
func inspected(format string) userfile.Kind {
	switch format {
	case formatHTML:
		return pageKind
	case flags.JSON:
		return inspectedKind
	}
	return inspectionKind
}

// checkOutputs refuses, before a command does anything, to write over what it reads or
// over what is of another kind than what it writes.
func checkOutputs(cmd *cobra.Command, args []string) error {
	kind, ok := written(cmd)
	if !ok {
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
		if err := userfile.Free(flag, to, kind, inputs...); err != nil {
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
