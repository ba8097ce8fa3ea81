package flags

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/columns"
)

// Heading is the title of a group of flags in help.
type Heading string

// Headings in the order of help.
const (
	Selection  Heading = "What to take"
	Matrix     Heading = "Compatibility matrix"
	Sources    Heading = "Sources"
	Trust      Heading = "Trust"
	Signing    Heading = "Signing"
	Registries Heading = "Registries"
	Output     Heading = "Output"
	Tuning     Heading = "Tuning, where the defaults do not suit the link"
	Global     Heading = "Of all commands"

	own Heading = "Flags" // of a command, in no group
)

var headings = []Heading{Selection, Matrix, Sources, Trust, Signing, Registries, Output, Tuning, Global}

// headingOf is the annotation with a flag's heading.
const headingOf = "heading"

// Group binds flags of a command that help shows together, below a heading.
func Group(cmd *cobra.Command, h Heading, bind func(*pflag.FlagSet)) {
	group(cmd.Flags(), h, bind)
}

// GlobalGroup binds flags of a command and of all its subcommands.
func GlobalGroup(cmd *cobra.Command, bind func(*pflag.FlagSet)) {
	group(cmd.PersistentFlags(), Global, bind)
}

func group(to *pflag.FlagSet, h Heading, bind func(*pflag.FlagSet)) {
	fs := pflag.NewFlagSet(string(h), pflag.ContinueOnError)
	fs.SortFlags = false
	bind(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		f.Annotations = map[string][]string{headingOf: {string(h)}}
		to.AddFlag(f)
	})
}

// ShowHelp writes a command's description and usage.
func ShowHelp(cmd *cobra.Command, out io.Writer) error {
	w := &writer{w: out, width: widthOf(out)}
	if text := strings.TrimSpace(cmp.Or(cmd.Long, cmd.Short)); text != "" {
		w.printf("%s\n\n", columns.Reflow(text, w.width))
	}
	return showUsage(cmd, w)
}

// ShowUsage writes a command's usage as cobra does, with its flags in groups.
func ShowUsage(cmd *cobra.Command) error {
	out := cmd.OutOrStderr()
	return showUsage(cmd, &writer{w: out, width: widthOf(out)})
}

func showUsage(cmd *cobra.Command, w *writer) error {
	w.printf("Usage:\n")
	if cmd.HasAvailableSubCommands() {
		w.printf("  %s COMMAND\n", cmd.CommandPath())
	} else {
		w.printf("  %s\n", cmd.UseLine())
	}
	if cmd.HasExample() {
		w.printf("\nExamples:\n%s\n", cmd.Example)
	}
	showCommands(w, cmd)
	showFlags(w, cmd)
	if cmd.HasAvailableSubCommands() {
		w.printf("\nUse `%s COMMAND --help` to read about a command.\n", cmd.CommandPath())
	}
	return w.err
}

// writer keeps its first error.
type writer struct {
	w     io.Writer
	width int // of wrapped text
	err   error
}

func (w *writer) printf(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.w, format, args...)
	}
}

func showCommands(w *writer, cmd *cobra.Command) {
	show := func(title, group string) {
		for _, c := range cmd.Commands() {
			if c.GroupID != group || !c.IsAvailableCommand() && c.Name() != "help" {
				continue
			}
			if title != "" {
				w.printf("\n%s:\n", title)
			}
			title = ""
			name := fmt.Sprintf("  %-*s ", c.NamePadding(), c.Name())
			w.printf("%s\n", columns.Hanging(name, strings.Repeat(" ", len(name)), c.Short, w.width))
		}
	}
	for _, g := range cmd.Groups() {
		show(g.Title, g.ID)
	}
	if len(cmd.Groups()) == 0 {
		show("Commands", "")
	} else {
		show("Other commands", "")
	}
}

const (
	maxWidth = 110 // longer lines are hard to read
	minWidth = 60  // pflag would not wrap well below it
)

func widthOf(w io.Writer) int {
	return min(max(cmp.Or(columns.Of(w), columns.Default), minWidth), maxWidth)
}

// showFlags writes a command's own flags, then each group of them.
func showFlags(w *writer, cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	cmd.Flags().SortFlags = false // show them in binding order, so that related flags stay together
	all := pflag.NewFlagSet("all", pflag.ContinueOnError)
	all.SortFlags = false
	all.AddFlagSet(cmd.LocalFlags())
	all.AddFlagSet(cmd.InheritedFlags())
	show := func(h Heading) {
		some := pflag.NewFlagSet(string(h), pflag.ContinueOnError)
		some.SortFlags = false
		all.VisitAll(func(f *pflag.Flag) {
			if headingFor(cmd, f) == h {
				some.AddFlag(f)
			}
		})
		if some.HasAvailableFlags() {
			w.printf("\n%s:\n%s", h, some.FlagUsagesWrapped(w.width))
		}
	}
	show(own)
	for _, h := range headings {
		show(h)
	}
}

func headingFor(cmd *cobra.Command, f *pflag.Flag) Heading {
	switch of := f.Annotations[headingOf]; {
	case len(of) > 0:
		return Heading(of[0])
	case cmd.Root().HasSubCommands() && (f.Name == "help" || f.Name == "version"):
		return Global
	}
	return own
}
