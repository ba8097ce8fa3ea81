package vcenter

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	govmomifault "github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

func (t Target) valid() error {
	if t.passwordless() || t.Sessions != "" {
		return nil
	}
	var errs []error
	for _, f := range []struct{ key, value string }{{"username", t.Username}, {"password", string(t.Password)}} {
		if strings.TrimSpace(f.value) != "" {
			continue
		}
		empty := fault.Errorf(fault.InvalidInput, "log in to", t.Address(),
			"give the Secret that spec.credentials names the keys username and password",
			"the Secret's key %s is absent or empty", f.key)
		if t.Given != "" {
			empty.Err, empty.Hint = fmt.Errorf("the %s is empty", f.key), "correct "+t.Given
		}
		errs = append(errs, empty)
	}
	return fault.Join(errs...)
}

func (t Target) given() string {
	return cmp.Or(t.Given, "the Secret that spec.credentials names")
}

// refusal returns the fault of a failed login, with a reason for each cause.
func (a *Admin) refusal(ctx context.Context, err error) error {
	t := a.target
	f, again := &fault.Error{Op: "log in to", Subject: t.Address()}, ""
	if t.Given == "" {
		again = "; the operator tries the same login again after an hour, however the name is written, " +
			"or at once after a new value of " + v1alpha1.AnnotationRequestedAt
	}
	switch text := err.Error(); {
	case strings.Contains(strings.ToLower(text), "locked"):
		f.Reason = fault.AccountLocked
		f.Err = fmt.Errorf("the account %s is locked", t.Username)
		f.Hint = "unlock it in the vCenter (or wait until the lock ends by itself), and put the right password into " + t.given() + ": every process that uses the old one locks it again" + again
	case is[*types.InvalidLogin](err):
		f.Reason = fault.Unauthorized
		f.Err = fmt.Errorf("the vCenter refuses the user name or password of %s%s", t.Username, noDomain(t.Username))
		f.Hint = "correct " + t.given() + again
		a.federated(ctx, f)
	case is[*types.PasswordExpired](err):
		f.Reason = fault.Unauthorized
		f.Err = fmt.Errorf("the password of %s is expired", t.Username)
		f.Hint = "set a new password in the vCenter and put it into " + t.given()
	case is[*types.NoPermission](err):
		f.Reason = fault.Forbidden
		f.Err = fmt.Errorf("the account %s has no role in this vCenter", t.Username)
		f.Hint = "give it the role ReadOnly on the vCenter's root, and the drivers' roles where they apply"
	default:
		return t.classify("log in to", err, nil)
	}
	return f
}

// federated adds another cause to the refusal of a right password: Broadcom KB 387932. Only accounts of the vCenter's
// own domain, which its lookup service names, certainly have a password.
func (a *Admin) federated(ctx context.Context, f *fault.Error) {
	own := "vsphere.local"
	if found, err := a.services(ctx); err == nil {
		own = found.domain()
	}
	domain, _, ok := strings.Cut(privileges.DomainUser(a.target.Username), `\`)
	if !ok || strings.EqualFold(domain, own) {
		return
	}
	f.Err = fmt.Errorf("%w; accounts of a federated identity provider (AD FS, Okta, Entra ID, VCF SSO), or with MFA, have no password there", f.Err)
	f.Hint += "; for the drivers, use an account of the vCenter's own domain, such as NAME@" + own + "; vdoctl takes --token-file, --login-certificate or --session-dir too"
}

func noDomain(user string) string {
	if render.QualifiedAccount(user) {
		return ""
	}
	return ", which has no domain: write NAME@DOMAIN"
}

// namer returns the inventory path of an object: people do not know its id.
type namer func(preflight.Ref) string

// classify returns an error of the network, of HTTP or of the API as a fault. name may be nil.
func (t Target) classify(op string, err error, name namer) error {
	f, ours := errors.AsType[*fault.Error](err) // of our own, wrapped by the HTTP client
	if !ours {
		f = t.cause(err, name)
	}
	f.Op, f.Subject = cmp.Or(f.Op, op), cmp.Or(f.Subject, t.Address())
	return f
}

func (t Target) cause(err error, name namer) *fault.Error {
	var (
		denied *types.NoPermission
		power  *types.InvalidPowerState
		record tls.RecordHeaderError
	)
	switch {
	case is[*types.NotAuthenticated](err):
		return &fault.Error{Reason: fault.Unreachable, Err: errors.New("the vCenter ended the session")}
	case asFault(err, &denied):
		return &fault.Error{Reason: fault.Forbidden,
			Err: fmt.Errorf("the account %s lacks the privilege %s%s",
				t.Username, cmp.Or(denied.PrivilegeId, "(unnamed)"), on(denied.Object, name)),
			Hint: "give it the role ReadOnly on the vCenter's root and on all parents of the nodes' VMs"}
	case asFault(err, &power):
		return &fault.Error{Reason: fault.Conflict, Err: fmt.Errorf("the VM is %s", power.ExistingState),
			Hint: "see what else changes it, and run the same command again"}
	case soap.IsSoapFault(err), is[types.BaseMethodFault](err): // the latter also of a task
		return &fault.Error{Reason: fault.Internal, Err: err, Hint: "see the recent tasks and events of the vCenter"}
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return notVCenter("it does not speak TLS")
	case errors.Is(err, context.Canceled):
		return &fault.Error{Reason: fault.Interrupted, Err: context.Canceled}
	}
	_, port, _ := net.SplitHostPort(t.Address())
	return &fault.Error{Reason: fault.Unreachable, Err: fmt.Errorf("it does not answer: %w", trimURL(err)),
		Hint: "correct spec.vcIp and spec.port, or see that it runs; open TCP " + port + " to it from here and from the control-plane nodes"}
}

func on(object *types.ManagedObjectReference, name namer) string {
	switch {
	case object == nil:
		return ""
	case name != nil:
		return " on " + name(ref(*object))
	}
	return fmt.Sprintf(" on %s %s", object.Type, object.Value)
}

func notVCenter(why string) *fault.Error {
	return &fault.Error{Reason: fault.InvalidInput, Err: errors.New("this is not a vCenter: " + why), Hint: "set spec.vcIp and spec.port to a vCenter's API"}
}

// trimURL removes the request's URL from an error of the HTTP client: the fault's subject has the address.
func trimURL(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

func is[F types.BaseMethodFault](err error) bool {
	var f F
	return asFault(err, &f)
}

func asFault[F types.BaseMethodFault](err error, target *F) bool {
	_, ok := govmomifault.As(err, target)
	return ok
}
