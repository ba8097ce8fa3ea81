package remote

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// helperTime is how long a credential helper may take.
const helperTime = time.Minute

// helper is oras' store of a docker-credential-NAME program, with a deadline, also where a
// program that it started holds its output. No error quotes what it says: that may be the
// secret.
type helper string

var _ credentials.Store = helper("")

// Get asks for the login of a server; none is the zero Credential.
func (h helper) Get(ctx context.Context, server string) (Credential, error) {
	return h.run(ctx, server, func(ctx context.Context, s credentials.Store) (Credential, error) { return s.Get(ctx, server) })
}

// Put has a login kept.
func (h helper) Put(ctx context.Context, server string, c Credential) error {
	_, err := h.run(ctx, server, func(ctx context.Context, s credentials.Store) (Credential, error) {
		return c, s.Put(ctx, server, c)
	})
	return err
}

// Delete has a login forgotten; of none, nothing.
func (h helper) Delete(ctx context.Context, server string) error {
	_, err := h.run(ctx, server, func(ctx context.Context, s credentials.Store) (Credential, error) {
		return Credential{}, s.Delete(ctx, server)
	})
	return err
}

func (h helper) run(
	ctx context.Context, server string, do func(context.Context, credentials.Store) (Credential, error),
) (c Credential, err error) {
	ctx, stop := context.WithTimeoutCause(ctx, helperTime, fmt.Errorf("it does not answer within %s", helperTime))
	defer stop()
	type answer struct {
		c   Credential
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		c, err := do(ctx, credentials.NewNativeStore(string(h)))
		answered <- answer{c, err}
	}()
	select {
	case a := <-answered:
		c, err = a.c, a.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	var missing *exec.Error
	switch {
	case err == nil:
		return c, nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case !errors.As(err, &missing):
		err = errors.New("it failed, or its answer is not that of a credential helper")
	}
	return Credential{}, &fault.Error{
		Reason: fault.Unauthorized, Op: "ask credential helper", Subject: h.program() + " for " + server,
		Hint: fmt.Sprintf("install %s, or log in without a helper", h.program()), Err: err,
	}
}

func (h helper) program() string { return "docker-credential-" + string(h) }
