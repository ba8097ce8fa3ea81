// Package vcenter asks a vCenter who it is and whether an account can use it.
//
// [Check] opens one session, asks, and logs out, whatever happens in between:
//
//  1. the TLS handshake, with the one rule of the [Target]: a thumbprint, CA
//     certificates, no check at all, or the system's roots (see [Trust]);
//  2. before any password is sent: that a vCenter answers there (neither an ESXi
//     host nor another web server), of a version that the drivers work with, and the
//     one that is meant;
//  3. the login;
//  4. the datacenters, all read in one batch.
//
// Each way to fail is a [fault.Error] of its own reason with its remedy. A fault
// comes with what was found out until then, so that a wrong password does not hide
// the version. Nothing of the password is ever part of an error or a Report.
//
// [Inspect] goes on from there, in the same session, and reads what the checks of package
// preflight look at. How often it asks does not depend on how many nodes there are: VMs
// are read in pages of [pageSize], by one view over the inventory and one look at those
// that may be nodes, privileges and tags in batches as large. The tags' API has sessions of
// its own: it is logged in to with the password that was accepted a moment before, once.
package vcenter

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

const (
	defaultPort    = 443
	defaultTimeout = 30 * time.Second
	logoutTimeout  = 10 * time.Second
)

// Target is a vCenter and the account to use.
type Target struct {
	Host        string // name or IP address, without port
	Port        int    // default 443
	Username    string
	Password    Password
	Given       string // what the account and password are given by, for hints; default: the Secret that spec.credentials names
	Trust       Trust
	Datacenters []string      // paths of datacenters that have to be there; empty asks for none in particular
	Timeout     time.Duration // of the whole check, but for what it waits in Turn; default 30 s
	// Turn makes the login, and nothing else, when it is its turn: the vCenter is reached and
	// known to be one by then. Where it returns an error without a login, that is the answer.
	// nil: at once.
	Turn func(ctx context.Context, login func() error) error `json:"-"`
	// InstanceUUIDs are those of the vCenters that may be logged in to; empty allows any.
	InstanceUUIDs []string
}

// TargetOf is the vCenter of a resource, with the account and the CA that it names.
func TargetOf(v *v1alpha1.VsphereCloudConfig, username, password string, ca []byte) Target {
	return Target{
		Host: v.Spec.VcIP, Port: int(v.Spec.Port), Username: username, Password: Password(password),
		Trust:       Trust{Insecure: v.Spec.AnyCertificate(), Thumbprint: v.Spec.Thumbprint, CA: ca},
		Datacenters: v.Spec.DatacenterNames(), InstanceUUIDs: v.InstanceUUIDs(),
	}
}

// Password is a string that does not print.
type Password string

// String hides the password.
func (Password) String() string { return "(hidden)" }

// GoString hides the password.
func (Password) GoString() string { return "(hidden)" }

// MarshalText hides the password.
func (Password) MarshalText() ([]byte, error) { return []byte("(hidden)"), nil }

// Address is host:port.
func (t Target) Address() string {
	port := t.Port
	if port == 0 {
		port = defaultPort
	}
	return net.JoinHostPort(t.Host, strconv.Itoa(port))
}

// Report is what was found.
type Report struct {
	Version      string // as the vCenter names it: 8.0.3
	APIVersion   string // 8.0.3.0
	Build        string
	InstanceUUID string
	Thumbprint   string    // SHA-1 of the certificate served, in the form that the drivers take
	Expires      time.Time // of that certificate
	User         string    // the account as the vCenter names it
	Datacenters  []string  // inventory paths that the account sees, sorted
	Missing      []string  // of those asked for, as they were written
}

// Check asks the vCenter. The report holds what was found before the fault.
func Check(ctx context.Context, t Target) (Report, error) {
	timeout := t.Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	left := budget{timeout}
	var r Report
	if err := t.valid(); err != nil {
		return r, err
	}
	var c *vim25.Client
	if err := left.spend(ctx, func(ctx context.Context) (err error) { c, err = t.connect(ctx, &r); return err }); err != nil {
		return r, t.classify("connect to", err)
	}
	defer c.CloseIdleConnections()
	r.about(c.ServiceContent.About)
	if err := t.acceptable(c.ServiceContent.About); err != nil {
		return r, err
	}
	return r, t.session(ctx, &left, c, &r, func(ctx context.Context) error { return t.ask(ctx, c, &r) })
}

// budget is the time that is left for several steps together.
type budget struct{ left time.Duration }

func (b *budget) spend(ctx context.Context, step func(context.Context) error) error {
	begun := time.Now()
	defer func() { b.left -= time.Since(begun) }()
	ctx, cancel := context.WithTimeout(ctx, b.left)
	defer cancel()
	return step(ctx)
}

// session logs in, works, and logs out, whatever happens in between.
func (t Target) session(ctx context.Context, left *budget, c *vim25.Client, r *Report, work func(context.Context) error) error {
	if err := t.enter(ctx, left, c, r); err != nil {
		return err
	}
	defer logout(ctx, c)
	return left.spend(ctx, work)
}

// enter logs in. The turn is over before it logs out, as it is before anything else is asked.
func (t Target) enter(ctx context.Context, left *budget, c *vim25.Client, r *Report) error {
	turn := t.Turn
	if turn == nil {
		turn = func(_ context.Context, login func() error) error { return login() }
	}
	open := false
	err := turn(ctx, func() error {
		return left.spend(ctx, func(ctx context.Context) (err error) { open, err = t.login(ctx, c, r); return err })
	})
	if err == nil {
		return nil
	}
	if open {
		logout(ctx, c)
	}
	return t.classify("log in to", err)
}

// login says whether a session may be open: it may where the answer was lost. Whoever waits
// for a turn waits no longer than defaultTimeout for this one, whatever the time of the rest.
func (t Target) login(ctx context.Context, c *vim25.Client, r *Report) (open bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	res, err := methods.Login(ctx, c, &types.Login{
		This: *c.ServiceContent.SessionManager, UserName: t.Username, Password: string(t.Password), Locale: "en_US"})
	if soap.IsSoapFault(err) {
		return false, t.classifyLogin(err)
	}
	if err != nil {
		return true, err
	}
	r.User = res.Returnval.UserName
	return true, nil
}

// ask is the part of the check that has a session.
func (t Target) ask(ctx context.Context, c *vim25.Client, r *Report) (err error) {
	r.Datacenters, err = datacenters(ctx, c)
	if err != nil {
		return t.classify("list the datacenters of", err)
	}
	r.Missing = missing(t.Datacenters, r.Datacenters)
	return t.judge(r)
}

// judge says what is wrong with the datacenters found.
func (t Target) judge(r *Report) error {
	if len(r.Missing) > 0 {
		return missingFault(t.Address(), r.Missing, r.Datacenters)
	}
	if len(r.Datacenters) == 0 {
		return &fault.Error{
			Reason: fault.Forbidden, Op: "list the datacenters of", Subject: t.Address(), Err: errNoDatacenter,
			Hint: "give " + t.Username + " the role ReadOnly on the vCenter's root, or on its datacenters"}
	}
	return nil
}

// logout ends the session also where ctx is over. Its error changes nothing: the
// vCenter ends idle sessions by itself.
func logout(ctx context.Context, c *vim25.Client) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), logoutTimeout)
	defer cancel()
	_, _ = methods.Logout(ctx, c, &types.Logout{This: *c.ServiceContent.SessionManager})
}
