// Package flags is what the commands of all programs have in common on their command
// lines: kinds of flags, groups of them in help, and the errors of a command that was
// called wrongly.
//
// Where flags follow the ecosystem (oras, cosign, skopeo, kubectl):
//
//	-o, --output     where a result is written to, and nothing else
//	--format         how a result is printed; it has no shorthand
//	-q, --quiet      no progress
//	--policy         a trust policy
//	--authfile       logins of registries; the settings of hosts are --hosts-config
//
// No flag takes a secret: a password comes by a file, the environment, standard input
// or a prompt.
package flags

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Choice is a flag with a fixed set of values.
type Choice struct {
	To *string
	Of []string
}

// String writes the value.
func (c *Choice) String() string {
	if c.To == nil {
		return ""
	}
	return *c.To
}

// Type says what the flag takes.
func (c *Choice) Type() string { return strings.Join(c.Of, "|") }

// Set takes one of the values.
func (c *Choice) Set(s string) error {
	if !slices.Contains(c.Of, s) {
		return fmt.Errorf("not one of %s", strings.Join(c.Of, ", "))
	}
	*c.To = s
	return nil
}

// Formats that results are printed in.
const (
	Text = "text"
	JSON = "json"
)

// Format binds --format, with text as its default.
func Format(cmd *cobra.Command, to *string) {
	*to = Text
	Group(cmd, Output, func(fl *pflag.FlagSet) {
		fl.Var(&Choice{To: to, Of: []string{Text, JSON}}, "format", "how to print the result: text or json")
	})
}

// Bad is the error of a flag's or an argument's value that cannot be understood. The hint of err, where
// it has one, is better than hint.
func Bad(flag, value string, err error, hint string) error {
	if h := fault.HintOf(err); h != "" {
		hint = h
	}
	op := "read"
	if strings.HasPrefix(flag, "-") {
		op = "read flag"
	}
	return fault.Errorf(fault.InvalidInput, op, fmt.Sprintf("%s %q", flag, value), hint, "%w", fault.CauseOf(err))
}

// Usage is the error of a command that was called wrongly.
func Usage(cmd *cobra.Command, why string) error {
	hint := fmt.Sprintf("see `%s --help`", cmd.CommandPath())
	return fault.Errorf(fault.InvalidInput, "read arguments", "", hint, "%s", why)
}

// UnknownCommand is the error of a command that is not there.
func UnknownCommand(cmd *cobra.Command, name string) error {
	why := fmt.Sprintf("unknown command %q", name)
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		why += ": did you mean " + strings.Join(near, " or ") + "?"
	}
	return Usage(cmd, why)
}

// OnlyCommands refuses, for a command that has others below it, an argument that names none.
func OnlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return UnknownCommand(cmd, args[0])
}

// Unread is the error of flags that cannot be read.
func Unread(cmd *cobra.Command, err error) error {
	if number, ok := strings.CutPrefix(err.Error()[strings.LastIndex(err.Error(), ": ")+1:], " missing unit in duration "); ok {
		hint := "write the unit: " + strings.Trim(number, `"`) + "s"
		return fault.Errorf(fault.InvalidInput, "read arguments", "", hint, "%w", err)
	}
	var number *strconv.NumError
	if errors.As(err, &number) { // whose words are of Go's functions
		return Usage(cmd, strings.Replace(err.Error(), number.Error(), form(number), 1))
	}
	return Usage(cmd, err.Error())
}

// form says what would have been taken in place of a value.
func form(err *strconv.NumError) string {
	switch {
	case errors.Is(err, strconv.ErrRange):
		return "too large or too small"
	case err.Func == "ParseBool":
		return "expected true or false"
	}
	return "expected a number"
}

// Complete has shells complete the values of flags with a fixed set of them, and makes
// cobra's own commands refuse what they do not know.
func Complete(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.RunE, c.Run = help, nil
		case "completion":
			c.Args = OnlyCommands
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	completeChoices(root)
}

func completeChoices(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if c, ok := f.Value.(*Choice); ok {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(c.Of, cobra.ShellCompDirectiveNoFileComp)) // once each
		}
	})
	for _, c := range cmd.Commands() {
		completeChoices(c)
	}
}

// help shows the help of a command.
func help(cmd *cobra.Command, args []string) error {
	of, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return UnknownCommand(cmd.Root(), strings.Join(args, " "))
	}
	of.InitDefaultHelpFlag()
	return of.Help()
}

// Missing is the error of a command that was called without a flag that it needs.
func Missing(cmd *cobra.Command, flag string) error {
	return Usage(cmd, "missing required flag "+flag)
}

// Exactly demands these arguments, of which those in brackets, the last ones, may be missing; and
// flags, which come after them and are written as messages name them: "-o DEST".
func Exactly(names ...string) cobra.PositionalArgs {
	isFlag := func(n string) bool { return strings.HasPrefix(n, "-") }
	required := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !isFlag(n) })
	names = slices.DeleteFunc(slices.Clone(names), isFlag)
	return func(cmd *cobra.Command, args []string) error {
		needed := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return strings.HasPrefix(n, "[") })
		switch {
		case len(args) < len(needed):
			return Usage(cmd, "missing argument "+strings.Join(needed[len(args):], " "))
		case len(args) > len(names):
			return Usage(cmd, fmt.Sprintf("unexpected argument %q", args[len(names)]))
		}
		for _, flag := range required {
			name, _, _ := strings.Cut(strings.TrimLeft(flag, "-"), " ")
			f := cmd.Flags().Lookup(strings.TrimSuffix(name, ":"))
			if f == nil && len(name) == 1 {
				f = cmd.Flags().ShorthandLookup(name)
			}
			if f == nil || !f.Changed || f.Value.String() == "" {
				return Missing(cmd, flag)
			}
		}
		return nil
	}
}
