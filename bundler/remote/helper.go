package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

var helperName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

const (
	maxSecret = 128 << 10 // a token of a credential helper
	// How long a credential helper may take, and how long what it started may hold its
	// output after its end.
	helperTime = time.Minute
	helperRest = time.Second
)

// helper is the store of a docker-credential-NAME program. oras' own has neither a
// deadline nor a bound for what the program says, takes any name for a program's, and
// puts the program's words, with the secret among them, into its errors.
type helper struct {
	name   string
	within time.Duration
}

var _ credentials.Store = helper{}

type helperLogin struct {
	ServerURL string `json:",omitempty"`
	Username  string
	Secret    string
}

const tokenUser = "<token>" // for whom the secret is an identity token

// Get asks for the login of a server, as docker does it: the server on standard input,
// JSON on standard output.
func (h helper) Get(ctx context.Context, server string) (Credential, error) {
	out, err := h.run(ctx, "get", server, server)
	if err != nil || out == nil {
		return Credential{}, err
	}
	var answer helperLogin
	if err := json.Unmarshal(out, &answer); err != nil {
		return Credential{}, h.fault(server, errors.New("its answer is not JSON"))
	}
	if answer.Username == tokenUser {
		return Credential{RefreshToken: answer.Secret}, nil
	}
	return Credential{Username: answer.Username, Password: answer.Secret}, nil
}

// Put has a login kept.
func (h helper) Put(ctx context.Context, server string, c Credential) error {
	login := helperLogin{ServerURL: server, Username: c.Username, Secret: c.Password}
	if c.RefreshToken != "" {
		login.Username, login.Secret = tokenUser, c.RefreshToken
	}
	input, err := json.Marshal(login) //nolint:gosec // for the standard input of the helper, which is to have the secret
	if err != nil {
		return h.fault(server, err)
	}
	_, err = h.run(ctx, "store", string(input), server)
	return err
}

// Delete has a login forgotten; of none, nothing.
func (h helper) Delete(ctx context.Context, server string) error {
	_, err := h.run(ctx, "erase", server, server)
	return err
}

// run runs the program. One that does not answer in time, or answers without end, is
// killed. Nil is the answer of one that does not know the server.
func (h helper) run(ctx context.Context, command, input, server string) ([]byte, error) {
	if !helperName.MatchString(h.name) {
		return nil, h.fault(server, errors.New("that is not a program's name"))
	}
	slow := fmt.Errorf("it does not answer within %s", h.within)
	ctx, stop := context.WithTimeoutCause(ctx, h.within, slow)
	defer stop()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	out := limitedBuffer{limit: maxSecret, full: func() { end(errEndless) }}
	cmd := exec.CommandContext(ctx, h.program(), command) //nolint:gosec // the user's configuration names the helper
	cmd.Stdin, cmd.Stdout, cmd.WaitDelay = strings.NewReader(input), &out, helperRest
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) { // that one has ended well, and what it started goes on
		if cause := context.Cause(ctx); cause != nil {
			return nil, h.fault(server, cause)
		}
		if bytes.Contains(out.data, []byte("credentials not found")) {
			return nil, nil
		}
		return nil, h.fault(server, err) // its output stays unsaid: it may hold the secret
	}
	if out.data == nil {
		out.data = []byte{}
	}
	return out.data, nil
}

func (h helper) program() string { return "docker-credential-" + h.name }

func (h helper) fault(server string, err error) error {
	return &fault.Error{
		Reason: fault.Unauthorized, Op: "ask credential helper", Subject: h.program() + " for " + server,
		Hint: fmt.Sprintf("install %s, or log in without a helper", h.program()), Err: err,
	}
}

var errEndless = errors.New("its answer is too long")

// limitedBuffer keeps what a credential helper may reasonably say. It has no other way
// to write than Write, which is where the limit is.
type limitedBuffer struct {
	data  []byte
	limit int
	full  func() // called where there is more
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if len(b.data)+len(p) > b.limit {
		b.full()
		return 0, errEndless
	}
	b.data = append(b.data, p...)
	return len(p), nil
}
