package command

import (
	"bufio"
	"cmp"
	"context"
	"crypto/fips140"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
)

// Root gives a root command the common behaviour: usage with grouped flags, help with the exit
// codes and more, our own errors, no empty flags. The version must be set. It uses no template: one keeps every
// method of every type linked, tens of thousands for the Kubernetes and vSphere types.
func Root(root *cobra.Command, more string) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Args = flags.OnlyCommands
	version := root.Version
	root.Version = "" // or cobra would show it, by a template
	short := "v"
	if root.PersistentFlags().ShorthandLookup(short) != nil {
		short = "" // the program uses it
	}
	shown := root.Flags().BoolP("version", short, false, "version for "+root.Name())
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *shown {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version)
			return err
		}
		return cmd.Help()
	}
	root.PersistentPreRunE = flags.Filled
	root.SetUsageFunc(flags.ShowUsage)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		out := cmd.OutOrStdout()
		if err := flags.ShowHelp(cmd, out); err == nil && !cmd.HasParent() {
			_, _ = io.WriteString(out, "\n"+ExitCodesHelp+more+"\n") // [Output] reports a failed write
		}
	})
	root.SetFlagErrorFunc(flags.Unread)
}

// Add puts commands below the root, in a group of its help.
func Add(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, c := range commands {
		c.GroupID = id
	}
	root.AddCommand(commands...)
}

// Signals returns the signals that end a program's work: Ctrl-C, SIGTERM and, unless under nohup, a lost terminal.
func Signals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// Run runs the command that the arguments name, and returns it with its error, which may be a
// failed write to standard output.
func Run(ctx context.Context, root *cobra.Command, args []string, out, err io.Writer) (*cobra.Command, error) {
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(err)
	cmd, failed := root.ExecuteContextC(ctx)
	if o, ok := out.(*Output); ok && failed == nil {
		failed = o.Failed()
	}
	if failed != nil { // a bad flag hides those after it
		known := pflag.NewFlagSet("", pflag.ContinueOnError)
		known.ParseErrorsAllowlist.UnknownFlags, known.Usage = true, func() {}
		for _, name := range []string{"format", "progress"} {
			if f := cmd.Flags().Lookup(name); f != nil {
				known.AddFlag(f)
			}
		}
		_ = known.Parse(args) // failed tells what is wrong
	}
	return cmd, failed
}

// WantsJSON reports whether a command's result is requested as JSON.
func WantsJSON(cmd *cobra.Command) bool {
	f := cmd.Flags().Lookup("format")
	return f != nil && f.Value.String() == flags.JSON
}

// Build is the version of a program, as `version` prints it.
type Build struct {
	Program  string `json:"-"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	FIPS140  bool   `json:"fips140"` // cryptography in FIPS 140 mode
}

// BuildOf describes the running program. linked is the linker's version; without one it is the module's.
func BuildOf(program, linked string) Build {
	b := Build{
		Program: program, Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, FIPS140: fips140.Enabled(),
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		b.Version = cmp.Or(plainVersion(linked), b.Version)
		return b
	}
	if v := plainVersion(linked); v != "" {
		b.Version = v
	} else if v := strings.TrimPrefix(info.Main.Version, "v"); v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}

// plainVersion returns a version without the v of its tag.
func plainVersion(v string) string {
	if len(v) > 1 && v[0] == 'v' && v[1] >= '0' && v[1] <= '9' {
		return v[1:]
	}
	return v
}

// String returns the build as `version` and --version print it.
func (b Build) String() string {
	mode := ""
	if b.FIPS140 {
		mode = " FIPS 140"
	}
	of := ""
	if b.Revision != "" {
		of = " " + b.Revision
	}
	return fmt.Sprintf("%s %s%s %s %s%s", b.Program, b.Version, of, b.Go, b.Platform, mode)
}

// ReadLine reads a line of a terminal. It does not echo a hidden line. A signal ends the wait and restores the
// terminal.
func ReadLine(ctx context.Context, in *os.File, hidden bool) (string, error) {
	terminal := int(in.Fd())
	before, err := term.GetState(terminal)
	if err != nil {
		return "", err
	}
	line, err := Within(ctx, func() (string, error) {
		if hidden {
			password, err := term.ReadPassword(terminal)
			return string(password), err
		}
		return bufio.NewReader(in).ReadString('\n')
	})
	if ctx.Err() != nil {
		err = errors.Join(err, term.Restore(terminal, before))
	}
	return line, err
}

// Within returns the result of read, or the cause when ctx ends. A read from a terminal or pipe cannot be cancelled;
// Within abandons it.
func Within[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type answer struct {
		data T
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		data, err := read()
		done <- answer{data, err}
	}()
	select {
	case got := <-done:
		return got.data, got.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
