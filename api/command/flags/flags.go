// Package flags has the common command-line parts of all programs: kinds of flags, groups of them
// in help, and usage errors.
//
// Flags that follow the ecosystem (oras, cosign, skopeo, kubectl):
//
//	-o, --output     where a result is written to, and nothing else
//	--format         how a result is printed; it has no shorthand
//	-q, --quiet      no progress
//	--policy         a trust policy
//	--authfile       logins of registries; the settings of hosts are --hosts-config
//
// No flag takes a secret: a password comes from a file, the environment, standard input or a
// prompt.
package flags

import (
	"errors"
	"fmt"
	"regexp"
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

// String returns the value.
func (c *Choice) String() string {
	if c.To == nil {
		return ""
	}
	return *c.To
}

// Type returns the possible values.
func (c *Choice) Type() string { return strings.Join(c.Of, "|") }

// Set sets one of the values.
func (c *Choice) Set(s string) error {
	if !slices.Contains(c.Of, s) {
		return fmt.Errorf("not one of %s", strings.Join(c.Of, ", "))
	}
	*c.To = s
	return nil
}

// Formats of results.
const (
	Text = "text"
	JSON = "json"
)

// Format binds --format, by default text.
func Format(cmd *cobra.Command, to *string) {
	*to = Text
	Group(cmd, Output, func(fl *pflag.FlagSet) {
		fl.Var(&Choice{To: to, Of: []string{Text, JSON}}, "format", "how to print the result: text or json")
	})
}

// Bad returns the error of an invalid value of a flag or argument. The hint of err, if it has one, replaces hint.
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

// Filled refuses an empty value, such as of an unset variable: it would switch off what the flag asks for. A flag
// whose help offers "" takes it.
func Filled(cmd *cobra.Command, _ []string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		list, isList := f.Value.(pflag.SliceValue)
		isEmpty := isList && strings.Join(list.GetSlice(), "") == "" ||
			f.Value.Type() == "string" && f.Value.String() == ""
		if isEmpty && !strings.Contains(f.Usage, `""`) {
			err = fault.Join(err, Bad("--"+f.Name, "", errors.New("empty"), "give it a value, or leave it out"))
		}
	})
	return err
}

// Usage returns the error of a wrong call of a command.
func Usage(cmd *cobra.Command, why string) error {
	hint := fmt.Sprintf("see `%s --help`", cmd.CommandPath())
	return fault.Errorf(fault.InvalidInput, "read arguments", "", hint, "%s", why)
}

// UnknownCommand returns the error of a command that does not exist.
func UnknownCommand(cmd *cobra.Command, name string) error {
	return Usage(cmd, fmt.Sprintf("unknown command %q", name)+meant(cmd, name, 2))
}

// meant asks whether a subcommand with a similar name was meant; "" for none.
func meant(cmd *cobra.Command, name string, distance int) string {
	cmd.SuggestionsMinimumDistance = distance
	near := cmd.SuggestionsFor(name)
	if len(near) == 0 {
		return ""
	}
	return ": did you mean " + strings.Join(near, " or ") + "?"
}

// meantFlag asks whether a flag with a similar name was meant. Short names are similar to many.
func meantFlag(cmd *cobra.Command, name string) string {
	all := &cobra.Command{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		all.AddCommand(&cobra.Command{Use: "--" + f.Name, Hidden: f.Hidden, Run: func(*cobra.Command, []string) {}})
	})
	return meant(all, name, len(name)/4)
}

// OnlyCommands refuses an argument that is not a subcommand.
func OnlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return UnknownCommand(cmd, args[0])
}

// Unread returns the error of unreadable flags, or of an unknown command before them, which has none.
func Unread(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); len(args) > 0 && cmd.HasSubCommands() {
		return UnknownCommand(cmd, args[0])
	}
	if number, ok := strings.CutPrefix(err.Error()[strings.LastIndex(err.Error(), ": ")+1:], " missing unit in duration "); ok {
		hint := "write the unit: " + strings.Trim(number, `"`) + "s"
		return fault.Errorf(fault.InvalidInput, "read arguments", "", hint, "%w", err)
	}
	if number, ok := errors.AsType[*strconv.NumError](err); ok { // its words are about Go functions
		return Usage(cmd, strings.Replace(err.Error(), number.Error(), form(number), 1))
	}
	why := err.Error()
	if name, ok := strings.CutPrefix(why, "unknown flag: "); ok {
		why += meantFlag(cmd, name)
	}
	return Usage(cmd, why)
}

// form returns the valid form of a value.
func form(err *strconv.NumError) string {
	switch {
	case errors.Is(err, strconv.ErrRange):
		return "too large or too small"
	case err.Func == "ParseBool":
		return "expected true or false"
	}
	return "expected a number"
}

// Complete makes commands without Args take what their usage line names, see [Exactly]. It adds shell
// completion for flags with fixed values, and makes cobra's own commands refuse unknown arguments.
func Complete(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.RunE, c.Run, c.Args = help, nil, cobra.ArbitraryArgs
		case "completion":
			c.Args = OnlyCommands
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	complete(root)
}

// usageWord matches an argument of a usage line, or a flag with its value; both may be in brackets.
var usageWord = regexp.MustCompile(`\[?-\S+ [^\s\]]+\]?|\S+`)

func complete(cmd *cobra.Command) {
	if cmd.Args == nil && cmd.HasParent() {
		words := usageWord.FindAllString(cmd.Use, -1)[1:]
		isOptionalFlag := func(word string) bool { return strings.HasPrefix(word, "[-") }
		cmd.Args = Exactly(slices.DeleteFunc(words, isOptionalFlag)...)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if c, ok := f.Value.(*Choice); ok {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(c.Of, cobra.ShellCompDirectiveNoFileComp)) // once each
		}
	})
	for _, c := range cmd.Commands() {
		complete(c)
	}
}

func help(cmd *cobra.Command, args []string) error {
	of, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return UnknownCommand(cmd.Root(), strings.Join(args, " "))
	}
	of.InitDefaultHelpFlag()
	return of.Help()
}

// Missing returns the error of a command without a required flag.
func Missing(cmd *cobra.Command, flag string) error {
	return Usage(cmd, "missing required flag "+flag)
}

// Exactly requires these arguments; the last ones may be optional, in brackets. It also requires
// the flags that follow, written as in messages: "-o DEST".
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
		case slices.Contains(args, "") && !strings.Contains(cmd.Long, `""`): // an unset variable
			return Usage(cmd, "argument "+strings.Trim(names[slices.Index(args, "")], "[]")+" is empty")
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
