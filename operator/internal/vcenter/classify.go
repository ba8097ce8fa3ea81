package vcenter

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	govmomifault "github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
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

// unsaved is the fault that no session is saved, and nothing else is given.
func (t Target) unsaved() error {
	return &fault.Error{Reason: fault.Unauthorized, Op: "log in to", Subject: t.Address(),
		Err: fmt.Errorf("no session of %s that is still open is saved in %s", t.Username, t.Sessions), Hint: "log in: govc session.login, or give a password or token too"}
}

// given is what the account and its password are given by.
func (t Target) given() string {
	return cmp.Or(t.Given, "the Secret that spec.credentials names")
}

// refusal tells the ways apart in which a login fails.
func (a *Admin) refusal(ctx context.Context, err error) error {
	t := a.target
	f := &fault.Error{Op: "log in to", Subject: t.Address()}
	switch text := err.Error(); {
	case strings.Contains(strings.ToLower(text), "locked"):
		f.Reason = fault.AccountLocked
		f.Err = fmt.Errorf("the account %s is locked", t.Username)
		f.Hint = "unlock it in the vCenter (or wait until the lock ends by itself), and put the right password into " + t.given() + ": every process that uses the old one locks it again"
	case is[*types.InvalidLogin](err):
		f.Reason = fault.Unauthorized
		f.Err = fmt.Errorf("the vCenter refuses the user name or password of %s%s", t.Username, noDomain(t.Username))
		f.Hint = "correct " + t.given() + "; it is not tried again before it changes, so that the account is not locked"
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
		return t.classify("log in to", err)
	}
	return f
}

// federated names what else the refusal of a right password may be: Broadcom KB 387932. Only accounts
// of the vCenter's own domain have a password in any case; its lookup service names that.
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

// classify turns an error of the network, of HTTP or of the API into a fault.
func (t Target) classify(op string, err error) error {
	var f *fault.Error
	if errors.As(err, &f) {
		return f // of our own, wrapped by the HTTP client
	}
	if f = classifyAPI(t, err); f == nil {
		f = classifyNetwork(t, err)
	}
	f.Op, f.Subject = op, t.Address()
	return f
}

// classifyAPI returns nil for what is no fault of the API.
func classifyAPI(t Target, err error) *fault.Error {
	var denied *types.NoPermission
	switch {
	case is[*types.NotAuthenticated](err):
		return &fault.Error{Reason: fault.Unreachable, Err: errors.New("the vCenter ended the session")}
	case asFault(err, &denied):
		what := "a privilege"
		if denied.PrivilegeId != "" {
			what = "the privilege " + denied.PrivilegeId
		}
		return &fault.Error{Reason: fault.Forbidden,
			Err:  fmt.Errorf("the account %s lacks %s%s", t.Username, what, on(denied.Object)),
			Hint: "give it the role ReadOnly on the vCenter's root and on all parents of the nodes' VMs"}
	case soap.IsSoapFault(err), soap.IsVimFault(err):
		return &fault.Error{Reason: fault.Internal, Err: err}
	}
	return nil
}

func on(ref *types.ManagedObjectReference) string {
	if ref == nil {
		return ""
	}
	return fmt.Sprintf(" on %s %s", ref.Type, ref.Value)
}

func classifyNetwork(t Target, err error) *fault.Error {
	var (
		dns     *net.DNSError
		status  *statusError
		record  tls.RecordHeaderError
		alert   tls.AlertError
		timeout net.Error
		tooLong *http.MaxBytesError
	)
	unreachable := func(why, hint string) *fault.Error {
		return &fault.Error{Reason: fault.Unreachable, Err: errors.New(why), Hint: hint}
	}
	switch {
	case errors.Is(err, errNotVCenter), errors.Is(err, errRedirect), errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return notVCenter(err)
	case errors.As(err, &tooLong):
		return &fault.Error{Reason: fault.Corrupt, Err: errors.New("the answer is too long"), Hint: "see that spec.vcIp and spec.port name a vCenter"}
	case errors.Is(err, context.Canceled):
		return &fault.Error{Reason: fault.Interrupted, Err: context.Canceled}
	case errors.As(err, &dns) && dns.IsNotFound:
		return unreachable(fmt.Sprintf("no such host: the name %s does not resolve", t.Host),
			"correct spec.vcIp, or the DNS that is used here and on the nodes")
	case errors.Is(err, syscall.ECONNREFUSED):
		return unreachable("connection refused: nothing listens there", "correct spec.vcIp and spec.port, or start the vCenter's services")
	case errors.As(err, &status):
		return classifyStatus(status)
	case errors.As(err, &alert):
		return &fault.Error{Reason: fault.Incompatible, Err: fmt.Errorf("the TLS handshake fails: %w", alert), Hint: "enable TLS 1.2 or later on the vCenter"}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return unreachable("it does not answer in time", "open TCP "+t.port()+" to the vCenter from here and from the control-plane nodes: firewall, NetworkPolicy, routes")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return unreachable("it ends the connection", "see whether the vCenter is starting, or a proxy or firewall is between")
	}
	return &fault.Error{Reason: fault.Unreachable, Err: trimURL(err), Hint: "see that the vCenter runs and can be reached from here"}
}

func notVCenter(err error) *fault.Error {
	why := err
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		why = fmt.Errorf("%w: it does not speak TLS", errNotVCenter)
	case errors.Is(err, errRedirect):
		why = fmt.Errorf("%w: %w", errNotVCenter, errRedirect)
	}
	return &fault.Error{Reason: fault.InvalidInput, Err: why, Hint: "set spec.vcIp and spec.port to a vCenter's API"}
}

func classifyStatus(s *statusError) *fault.Error {
	if s.code == http.StatusTooManyRequests {
		return &fault.Error{Reason: fault.Throttled, Err: s, Hint: "wait, or look for what asks this vCenter so often"}
	}
	return &fault.Error{Reason: fault.Unreachable, Err: s, Hint: "wait until the vCenter's services are started, or see what is wrong with them"}
}

// port is the port of the address.
func (t Target) port() string {
	_, port, _ := net.SplitHostPort(t.Address())
	return port
}

// trimURL takes the request's URL off an error of the HTTP client: the address is
// in the fault's subject.
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
