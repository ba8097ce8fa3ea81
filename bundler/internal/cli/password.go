package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/token"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
)

// passwordFlags say where the password of a private key comes from. A password is
// never an argument: other users of the machine see those.
type passwordFlags struct {
	file  string
	found string // the environment variable that had the password; "" for none
}

func (f *passwordFlags) bind(fl *pflag.FlagSet) {
	fl.StringVar(&f.file, "key-password-file", "", "`FILE` with the password of the private key (else VDO_KEY_PASSWORD, COSIGN_PASSWORD, or a prompt)")
}

// pin finds the PIN of a token: the file that the URI names, else as passwords of
// keys are found.
func (f *passwordFlags) pin(ctx context.Context, a *app, uri token.URI) ([]byte, error) {
	if uri.PINFile != "" {
		data, err := userfile.Read("pin-source", uri.PINFile, maxPassword)
		return bytes.TrimRight(data, "\r\n"), err
	}
	return f.password(ctx, a, "PIN of "+uri.String()+": ")
}

// password finds the password of a private key: the file, the environment, the
// terminal; never the arguments.
func (f *passwordFlags) password(ctx context.Context, a *app, prompt string) ([]byte, error) {
	if f.file != "" {
		data, err := userfile.Read("--key-password-file", f.file, maxPassword)
		return bytes.TrimRight(data, "\r\n"), err
	}
	for _, name := range []string{"VDO_KEY_PASSWORD", "COSIGN_PASSWORD"} {
		if value, ok := a.getenv(name); ok {
			f.found = name
			return []byte(value), nil
		}
	}
	if a.in != nil && term.IsTerminal(int(a.in.Fd())) {
		return a.prompt(ctx, prompt)
	}
	return nil, fault.Errorf(fault.InvalidInput, "read password", "",
		"set VDO_KEY_PASSWORD or COSIGN_PASSWORD, or name a file with --key-password-file",
		"no password, and no terminal to ask for one")
}

// newPassword finds the password that a new key is encrypted with. On a terminal it is
// asked for twice: a slip would make a key that nobody can use. An empty one is refused,
// wherever it comes from: it would protect nothing, and hardly anybody means it.
func (f *passwordFlags) newPassword(ctx context.Context, a *app, prompt string) ([]byte, error) {
	asked := a.asked
	password, err := f.password(ctx, a, prompt)
	if err != nil {
		return nil, err
	}
	bad := func(why, hint string) ([]byte, error) {
		return nil, &fault.Error{Reason: fault.InvalidInput, Op: "read password", Err: errors.New(why), Hint: hint}
	}
	if len(password) == 0 {
		return bad("it is empty", "give one; a key that must not be encrypted comes from `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256`")
	}
	if a.asked == asked {
		return password, nil
	}
	again, err := a.prompt(ctx, "The same once more: ")
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(password, again) {
		return bad("the two are not the same", "run the command again")
	}
	return password, nil
}

// prompt asks on the terminal. A signal ends the wait, and leaves the terminal as it was.
func (a *app) prompt(ctx context.Context, prompt string) ([]byte, error) {
	a.asked++
	terminal := int(a.in.Fd())
	before, err := term.GetState(terminal)
	if err != nil {
		return nil, err
	}
	a.ask(prompt)
	defer a.ask("\n")
	password, err := within(ctx, func() ([]byte, error) { return term.ReadPassword(terminal) })
	if ctx.Err() != nil {
		err = errors.Join(err, term.Restore(terminal, before))
	}
	return password, err
}

// within returns what read does, or why ctx has ended: who reads a terminal or a pipe
// cannot be stopped, but need not be waited for.
func within(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	type answer struct {
		data []byte
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
		return nil, context.Cause(ctx)
	}
}

func (a *app) ask(s string) { _, _ = fmt.Fprint(a.err, s) }
