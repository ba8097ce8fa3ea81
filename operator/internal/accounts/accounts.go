// Package accounts makes the account that the drivers log in to vCenters with, changes it
// for another one, and takes away what it made.
//
// An account is that of one Secret, and of all vCenters whose VsphereCloudConfig names the
// Secret. What is needed in each of them is a [privileges.Plan].
//
// What was made is in a record, the ConfigMap vdo-account-SECRET beside the Secret. It is
// written before anything is made, with what was there before, so that it is complete
// whenever the program ends:
//
//   - what is found on the vCenter and is not in the record was there before, and stays;
//   - an account is known to be made here by its description, which names the cluster: one
//     without it is never given a password, and never removed;
//   - an account that was made here and whose password is in no Secret is given another
//     one, unless a driver runs with it or someone is logged in with it. Where the Secret's
//     is refused, [Rotate] gives the drivers another account.
//
// The record is a ConfigMap, which others may be able to write who may change nothing in a
// vCenter. So [Delete] removes roles by the drivers' names alone, changes none, and gives no
// permission: one that was there before is named. What a forged record can do is to have
// permissions with the drivers' roles or ReadOnly taken away.
//
// An account has one role on an object, so that a role that is given takes the place of
// what was there. [Create] and [Rotate] change no account that would lose something by that,
// but for one that was made here, nor who is logged in to make the change; and to one that
// was not made here they give roles only where this run has named it, since who may write
// the Secret need not be one who may give roles. [Delete] takes nothing from who is logged in.
//
// A vCenter's roles are those of all clusters: what one lacks is added to it, and nothing is
// taken from it. [Delete] removes a role that was made here, where no one else has it.
//
// So each of [Create], [Rotate] and [Delete] can be run again wherever it was stopped, and
// does what is left.
//
// An account of a vCenter has one password. To have two that work side by side takes two
// accounts: [Rotate] makes a second one beside the first, with the same roles, puts it
// into the Secret, waits until the operator has tried it and every pod of the drivers that
// had the first was started with it, and only then removes the first. It stays while a
// session with it is open: from one of this cluster's nodes until that was idle for two
// minutes, from elsewhere until it ends. Where nodes are behind the same address as someone
// else's programs, their idle sessions are not told apart, and where nodes are behind an
// address that is not their own, a rotation waits until the vCenter ends their old sessions.
//
// An account has several names, since a vCenter may answer with the alias of its domain. Names are
// compared as each vCenter writes them, and never as text alone. Linked vCenters share accounts with a
// delay: one that exists at one of them is waited for at the others. A vCenter that no VsphereCloudConfig has
// any more is named, and stays in the record: [Delete] keeps that, but for [Site.Forget].
//
// With [Site.Output], something else writes the Secret, such as a GitOps tool: the run ends with the Secret
// that is to be written, and one without Output goes on once the cluster has it. Nothing is written to a Secret
// that something else writes.
//
// Of two runs at once one finds the record changed and ends.
package accounts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// VCenter is a session of who may change a vCenter. [vcenter.Admin] is one.
type VCenter interface {
	Domain(ctx context.Context) (string, error)
	Account(ctx context.Context, name string) (vcenter.Account, error)
	PasswordDays(ctx context.Context) (int, error)
	MakeAccount(ctx context.Context, name, description string, p vcenter.Password) error
	SetPassword(ctx context.Context, name string, p vcenter.Password) error
	RemoveAccount(ctx context.Context, name string) error

	Roles(ctx context.Context) (map[string]vcenter.Role, error)
	MakeRole(ctx context.Context, name string, privileges []string) error
	ChangeRole(ctx context.Context, r vcenter.Role, privileges []string) error
	RemoveRole(ctx context.Context, r vcenter.Role) (used bool, err error)

	Permissions(ctx context.Context, principal string) (map[string]privileges.Permission, error)
	SetPermission(ctx context.Context, id, principal string, r vcenter.Role, propagate bool) error
	RemovePermission(ctx context.Context, id, principal string) error
	// PathOf is the inventory path of an object, or its id where it has none.
	PathOf(ctx context.Context, id string) string

	// Canonical is the one name of an account in this vCenter; Linked says the same in all vCenters
	// that share their accounts.
	Canonical(ctx context.Context, name string) string
	Linked(ctx context.Context) (string, error)

	Sessions(ctx context.Context, principal string) ([]vcenter.Session, error)
}

// Place is a vCenter that the account is for.
type Place struct {
	Name   string // of the VsphereCloudConfig
	Server string
	User   string // who is logged in there
	VCenter
	// Plan is what an account needs there, compared with what there is.
	Plan func(ctx context.Context, principal string) (privileges.Plan, error)
	// Verify logs in as the account and asks what it may do. It returns what is missing.
	Verify func(ctx context.Context, l Login) (missing []string, err error)
}

// Login is an account and its password.
type Login struct {
	Username string
	Password vcenter.Password
}

// Site is what the account is for.
type Site struct {
	API client.Client

	Namespace string
	Secret    string
	Cluster   string // identifies the cluster, in the description of accounts
	Places    []Place
	// Progress is told of each thing that is done, or would be.
	Progress func(Change)
	// Output takes the Secret in the place of the cluster.
	Output func(*corev1.Secret) error
	// Forget has [Site.Delete] drop the record of vCenters that no VsphereCloudConfig has.
	Forget bool
	// DryRun changes nothing.
	DryRun bool
	// Wait bounds each wait; Poll is how often is looked. Defaults: 15 minutes, 2 seconds.
	Wait, Poll time.Duration

	nodes map[string]bool // addresses of the cluster's nodes; nil before they were read
	// known are the accounts of vCenters that share theirs, by what [VCenter].Linked says; true where
	// their password is of this run.
	known map[string]bool
}

// Change is one thing that is done.
type Change struct {
	VCenter string `json:"vcenter,omitempty"` // by the name of its VsphereCloudConfig; empty for the cluster
	Do      Do     `json:"do"`
	Kind    string `json:"kind"` // account, role, permission, Secret
	Name    string `json:"name"`
	Account string `json:"account,omitempty"` // that it is done for; of an account, itself
	On      string `json:"on,omitempty"`      // path of the object that a permission is on, or its id
	Note    string `json:"note,omitempty"`
}

// Do is what is done to something.
type Do string

// What can be done.
const (
	Make   Do = "make"
	Reset  Do = "reset" // the password of an account that no one uses
	Set    Do = "set"
	Edit   Do = "change"
	Print  Do = "print"
	Remove Do = "remove"
	Leave  Do = "leave"
	Wait   Do = "wait"
)

func (s *Site) did(c Change) {
	if s.Progress != nil {
		s.Progress(c)
	}
}

func (s *Site) act(c Change, do func() error) error {
	s.did(c)
	if s.DryRun {
		return nil
	}
	return do()
}

// same reports whether two names are of one account, in any of the vCenters: a name may have the
// alias of its domain.
func (s *Site) same(ctx context.Context, a, b string) bool {
	return privileges.SameUser(a, b) || a != "" && b != "" &&
		slices.ContainsFunc(s.Places, func(p Place) bool { return p.same(ctx, a, b) })
}

func (p *Place) same(ctx context.Context, a, b string) bool {
	return strings.EqualFold(p.Canonical(ctx, a), p.Canonical(ctx, b))
}

func (s *Site) description() string {
	return fmt.Sprintf("vSphere drivers of Kubernetes cluster %s, Secret %s/%s; made by vdoctl", s.Cluster, s.Namespace, s.Secret)
}

// command is one of vdoctl for this account, for hints: a site may have several.
func (s *Site) command(verb string, flags ...string) string {
	words := append([]string{"vdoctl users", verb, "--username ADMIN"}, flags...)
	return strings.Join(append(words, "--secret", s.Secret), " ")
}

// DefaultName is how an account is called that no one named.
func (s *Site) DefaultName(domain string) string {
	id, _, _ := strings.Cut(s.Cluster, "-")
	return "vdo-" + id + "@" + domain
}

// second ends the name of every second account.
const second = "-b"

func successor(name string) string {
	local, rest := name, ""
	if i := strings.Index(name, "@"); i >= 0 { // else DOMAIN\name
		local, rest = name[:i], name[i:]
	}
	if before, ok := strings.CutSuffix(local, second); ok {
		return before + rest
	}
	return local + second + rest
}

// each does something for each vCenter; the first fault ends it.
func (s *Site) each(do func(*Place) error) error {
	for i := range s.Places {
		if err := do(&s.Places[i]); err != nil {
			return err
		}
	}
	return nil
}
