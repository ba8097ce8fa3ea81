// Package accounts creates the account that the drivers log in to vCenters with, rotates it, and deletes what it
// created.
//
// An account belongs to one Secret, and to all vCenters whose VsphereCloudConfig names the Secret. A [privileges.Plan]
// says what it needs in each of them.
//
// The record of what was created is the ConfigMap vdo-account-SECRET beside the Secret. It also has the state before.
// It is written before anything is created, so that it is complete whenever the program ends:
//
//   - an object on the vCenter that the record does not have existed before, and stays;
//   - an account that was created here names the cluster in its description: without that it never gets a password
//     and is never removed;
//   - an account that was created here, and whose password no Secret has, gets a new password unless a driver or a
//     session uses it. If the vCenter refuses the Secret's password, [Rotate] gives the drivers another account.
//
// Users who may change nothing in a vCenter may be able to write the ConfigMap. So [Delete] removes only roles with
// the drivers' names, changes none, and grants no permission: it only reports an earlier one. A forged record can at
// most remove permissions with the drivers' roles or ReadOnly.
//
// An account has one role on an object, so a new role replaces an earlier one. [Create] and [Rotate] change no account
// that would lose something by that, except one that was created here. They never change the account that is logged
// in. They give roles to an account that was not created here only if this run names it. Users who may write the
// Secret may not be allowed to give roles. [Delete] takes nothing from the account that is logged in.
//
// All clusters share a vCenter's roles: missing privileges are added, and none is removed. [Delete] removes a role
// that was created here if no other account has it. Roles that linked vCenters share stay.
//
// So [Create], [Rotate] and [Delete] can run again after any interruption, and do the remaining work.
//
// An account of a vCenter has one password, so a change without a gap needs two accounts. [Rotate] creates a second
// one with the same roles and puts it into the Secret. It waits until the operator has tried it, and every driver pod
// that had the first was restarted with it. Only then it removes the first, which stays while a session is open. A
// session from one of this cluster's nodes counts until it was idle for two minutes, one from another address until it
// ends. Idle sessions of other programs behind a node's address look the same as the node's. If nodes are behind a
// foreign address, a rotation waits until the vCenter ends their old sessions.
//
// An account has several names, since a vCenter may answer with the alias of its domain. Names are compared as each
// vCenter writes them, and never as text alone. Linked vCenters share accounts and roles with a delay: after
// one has them, the program waits for the others. A vCenter that no VsphereCloudConfig has is reported and stays in the
// record, which [Delete] then keeps unless [Site.Forget] is set.
//
// With [Site.Output] another program writes the Secret, such as a GitOps tool. The run ends with the Secret to write,
// and a later run without Output continues once the cluster has it. This package never writes a Secret that another
// program writes.
//
// If two runs overlap, one finds the record changed and ends.
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

// VCenter is the session of an administrator. [vcenter.Admin] is one.
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
	// PathOf returns the inventory path of an object, or its id if it has none.
	PathOf(ctx context.Context, id string) string

	// Canonical returns the one name of an account in this vCenter. Linked returns the same text in all vCenters that
	// share their accounts.
	Canonical(ctx context.Context, name string) string
	Linked(ctx context.Context) (string, error)

	Sessions(ctx context.Context, principal string) ([]vcenter.Session, error)
}

// Place is a vCenter that the account is for.
type Place struct {
	Name   string // of the VsphereCloudConfig
	ID     string // the vCenter's instance UUID
	Config string // its namespace, which may not be the Secret's
	Server string
	User   string // the administrator who is logged in there
	VCenter
	// Plan returns what an account needs there, compared with the present state.
	Plan func(ctx context.Context, principal string) (privileges.Plan, error)
	// Verify logs in as the account, and returns the privileges that it lacks.
	Verify func(ctx context.Context, l Login) (missing []string, err error)
}

// Login is an account and its password.
type Login struct {
	Username string
	Password vcenter.Password
}

// Site is the account's scope: cluster, Secret and vCenters.
type Site struct {
	API client.Client

	Namespace string
	Secret    string
	Cluster   string // identifies the cluster, in the description of accounts
	Places    []*Place
	// Progress receives each change that is made, or would be in a dry run.
	Progress func(Change)
	// Output receives the Secret instead of the cluster.
	Output func(*corev1.Secret) error
	// Forget lets [Site.Delete] drop the record of vCenters that no VsphereCloudConfig has.
	Forget bool
	// DryRun changes nothing.
	DryRun bool
	// Wait bounds each wait; Poll is the interval of its checks. Defaults: 15 minutes, 2 seconds.
	Wait, Poll time.Duration

	nodes map[string]bool // addresses of the cluster's nodes; nil before they are read
	// known has the account and roles of linked vCenters, by [VCenter].Linked; true for a password that this run set.
	known map[string]bool
	days  int // until the password ends that this run made; 0: never, or none was made
}

// Change is one change to a vCenter or the cluster.
type Change struct {
	VCenter string `json:"vcenter,omitempty"` // by the name of its VsphereCloudConfig; empty for the cluster
	Do      Do     `json:"do"`
	Kind    string `json:"kind"` // account, role, permission, Secret
	Name    string `json:"name"`
	Account string `json:"account,omitempty"` // that it is done for; for an account, its name
	On      string `json:"on,omitempty"`      // path of the object that a permission is on, or its id
	Note    string `json:"note,omitempty"`
}

// Do is the kind of a change.
type Do string

// The kinds of changes.
const (
	Make   Do = "make"
	Reset  Do = "reset" // a new password for an account that no session uses
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

// same reports whether two names are of one account in any of the vCenters: a name may have the alias of its domain.
func (s *Site) same(ctx context.Context, a, b string) bool {
	return privileges.SameUser(a, b) || a != "" && b != "" &&
		slices.ContainsFunc(s.Places, func(p *Place) bool { return p.same(ctx, a, b) })
}

func (p *Place) same(ctx context.Context, a, b string) bool {
	return strings.EqualFold(p.Canonical(ctx, a), p.Canonical(ctx, b))
}

func (s *Site) description() string {
	return fmt.Sprintf("vSphere drivers of Kubernetes cluster %s, Secret %s/%s; made by vdoctl", s.Cluster, s.Namespace, s.Secret)
}

// command returns a vdoctl command for this account, for hints: a site may have several.
func (s *Site) command(verb string, flags ...string) string {
	words := append([]string{"vdoctl users", verb, "--username ADMIN"}, flags...)
	return strings.Join(append(words, "--secret", s.Secret), " ")
}

// DefaultName returns the name of an account if the user names none.
func (s *Site) DefaultName(domain string) string {
	id, _, _ := strings.Cut(s.Cluster, "-")
	return "vdo-" + id + "@" + domain
}

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
