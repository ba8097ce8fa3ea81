package accounts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// Delete removes what was created, except what others have changed since. It refuses while a driver uses the account.
func (s *Site) Delete(ctx context.Context) error {
	r, err := s.readRecord(ctx)
	if err != nil {
		return err
	}
	if r.object == nil {
		return &fault.Error{Reason: fault.NotFound, Op: "delete the account of Secret", Subject: s.Namespace + "/" + s.Secret, Err: errors.New("there is no record that anything was made for it"),
			Hint: "what was made without users create is taken away where it was made"}
	}
	if err := s.free(ctx, r); err != nil {
		return err
	}
	if err := s.removeSecret(ctx, r); err != nil {
		return err
	}
	for _, account := range slices.Sorted(maps.Keys(r.accounts())) {
		if err := s.takeAway(ctx, r, account, r.accounts()[account]); err != nil {
			return err
		}
	}
	for _, p := range s.Places {
		if err := s.clear(ctx, r, p); err != nil {
			return err
		}
	}
	if left := s.elsewhere(r); len(left) > 0 && !s.Forget {
		if s.DryRun {
			return nil // the record stays
		}
		return &fault.Error{Reason: fault.Incomplete, Op: "delete account", Subject: r.Account,
			Err:  fmt.Errorf("no VsphereCloudConfig names the Secret for %q any more, where something was made too", left),
			Hint: "apply it again, and run the same command again; or, to leave what is there: " + s.command("delete", "--forget")}
	}
	return s.gone(ctx, r.object, "ConfigMap", r.Account)
}

// elsewhere returns the vCenters of a record for which no VsphereCloudConfig names the Secret. It reports that their
// objects stay: most often the vCenter is gone, and it may be away for a moment.
func (s *Site) elsewhere(r *record) (left []string) {
	for _, name := range slices.Sorted(maps.Keys(r.Places)) {
		if !slices.ContainsFunc(s.Places, func(p *Place) bool { return p.Name == name }) {
			s.did(Change{VCenter: name, Do: Leave, Kind: "account", Name: r.Account, Account: r.Account,
				Note: "no VsphereCloudConfig of this name has the Secret any more: where the vCenter exists, apply that first"})
			left = append(left, name)
		}
	}
	return left
}

func (r *record) accounts() map[string]bool {
	out := map[string]bool{r.Account: r.Made}
	if r.Next != "" {
		out[r.Next] = r.NextMade
	}
	return out
}

// free refuses while a driver of this cluster has one of the accounts, or a session uses it.
func (s *Site) free(ctx context.Context, r *record) error {
	users, err := s.drivers(ctx)
	if err != nil {
		return err
	}
	for account, made := range r.accounts() {
		if err := s.other(ctx, r, account, made); err != nil {
			return err
		}
		for _, d := range users {
			if s.uses(ctx, &d, account) {
				return &fault.Error{Reason: fault.Refused, Op: "delete account", Subject: account, Err: fmt.Errorf("%s uses it", d.name),
					Hint: "remove the drivers first, `vdoctl delete --drivers`; or give them another account: `" +
						s.command("rotate") + "`"}
			}
		}
		if err := s.quiet(ctx, r, account, made); err != nil {
			return err
		}
	}
	return nil
}

// removeSecret removes the Secret first, so that no driver logs in with a removed account. It leaves a Secret that
// existed before, or that has another account.
func (s *Site) removeSecret(ctx context.Context, r *record) error {
	secret, err := s.secret(ctx)
	if err != nil || secret == nil {
		return err
	}
	mine := false
	for account, made := range r.accounts() {
		mine = mine || s.same(ctx, loginOf(secret).Username, account) && (r.SecretMade || made)
	}
	if !mine {
		s.did(Change{Do: Leave, Kind: "Secret", Name: s.Namespace + "/" + s.Secret, Account: loginOf(secret).Username, Note: "it was there before"})
		return nil
	}
	return s.gone(ctx, secret, "Secret", loginOf(secret).Username)
}

// gone deletes an object if it is still in the state that was read.
func (s *Site) gone(ctx context.Context, o client.Object, kind, account string) error {
	uid, version, name := o.GetUID(), o.GetResourceVersion(), client.ObjectKeyFromObject(o).String()
	err := s.act(Change{Do: Remove, Kind: kind, Name: name, Account: account}, func() error {
		return s.API.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version})
	})
	if client.IgnoreNotFound(err) != nil {
		return clusterstate.Fault("delete "+kind+" "+name, err)
	}
	return nil
}

func (s *Site) clear(ctx context.Context, r *record, p *Place) error {
	names := slices.Collect(maps.Keys(r.accounts()))
	for _, account := range slices.Sorted(maps.Keys(r.place(p).Permissions)) {
		if !slices.ContainsFunc(names, func(n string) bool { return s.same(ctx, n, account) }) {
			s.did(Change{VCenter: p.Name, Do: Leave, Kind: "account", Name: account, Account: account,
				Note: "another one took its place while no VsphereCloudConfig had the vCenter: remove it by hand"})
		}
	}
	return s.clearRoles(ctx, r, p)
}

// takeAway removes an account's permissions in all vCenters, then the account if it was created here: linked vCenters
// share it. It leaves an account untouched if the record calls it created here but its description does not.
func (s *Site) takeAway(ctx context.Context, r *record, account string, made bool) error {
	var ours []*Place
	for _, p := range s.Places {
		var found vcenter.Account
		var err error
		if made {
			found, err = p.Account(ctx, account)
		}
		if err != nil {
			return err
		}
		leave := Change{VCenter: p.Name, Do: Leave, Kind: "account", Name: account, Account: account, Note: "it was not made here"}
		if found.Exists && found.Description != s.description() {
			leave.Note = "it was not made for this Secret of this cluster, by its description"
			s.did(leave)
			continue
		}
		before := r.permissionsOf(ctx, p, account)
		if found.Exists { // the record may be older than what its own account has
			has, err := p.Permissions(ctx, account)
			if err != nil {
				return err
			}
			for id := range has {
				before[id] = nil
			}
			ours = append(ours, p)
		}
		if err := s.takePermissions(ctx, p, account, found.Exists, before); err != nil {
			return err
		}
		if !made {
			s.did(leave)
		}
	}
	for _, p := range ours {
		found, err := p.Account(ctx, account)
		if found.Exists { // linked vCenters share it
			err = s.act(Change{VCenter: p.Name, Do: Remove, Kind: "account", Name: account, Account: account}, func() error { return p.RemoveAccount(ctx, account) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takePermissions removes the recorded permissions of an account, except unchanged ones, and reports the earlier ones.
// It restores none: a writer of the ConfigMap is no administrator of the vCenter. The flag own is set if the account
// exists and was created for this Secret.
func (s *Site) takePermissions(
	ctx context.Context, p *Place, account string, own bool, before map[string]*privileges.Permission,
) error {
	has, err := p.Permissions(ctx, account)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(before)) {
		now, isThere := has[id]
		was := before[id]
		if !isThere || was != nil && *was == now {
			continue
		}
		c := Change{VCenter: p.Name, Do: Remove, Kind: "permission", Name: now.Role, Account: account}
		c.On = p.PathOf(ctx, id)
		if !own && !isOurs(now.Role) {
			c.Do, c.Note = Leave, "another person has set it"
			s.did(c)
			continue
		}
		if was != nil {
			c.Note = fmt.Sprintf("by the record %s had %s there before: where it needs that, give it by hand", account, shown(*was))
		}
		if err := s.act(c, func() error { return p.RemovePermission(ctx, id, account) }); err != nil {
			return err
		}
	}
	return nil
}

func isOurs(role string) bool {
	return role == privileges.ReadOnly || privileges.IsDriverRole(role)
}

func shown(p privileges.Permission) string {
	if p.Propagate {
		return p.Role + ", propagating"
	}
	return p.Role
}

// clearRoles removes the roles that were created here and that no account has, except in linked vCenters, whose
// permissions are unknown here. A role that existed before keeps its added privileges: other clusters may need them.
func (s *Site) clearRoles(ctx context.Context, r *record, p *Place) error {
	roles, err := p.Roles(ctx)
	if err != nil {
		return err
	}
	made := r.place(p).Roles
	linked, errLinked := p.Linked(ctx)
	for _, name := range slices.Sorted(maps.Keys(made)) {
		role, isThere := roles[name]
		switch {
		case !isThere:
		case !privileges.IsDriverRole(name): // a writer of the record is no administrator of the vCenter
			s.leaveRole(p, r.Account, name, "it is none of the drivers' roles, though the record says so")
		case made[name] != nil:
			s.leaveRole(p, r.Account, name, "it was there before, and keeps what was added to it")
		case errLinked != nil || strings.Contains(linked, " "): // roles are shared there, and permissions are not
			s.leaveRole(p, r.Account, name, "linked vCenters share it, and other clusters may have it there")
		default:
			err = s.removeRole(ctx, p, r.Account, role)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Site) leaveRole(p *Place, account, name, why string) {
	s.did(Change{VCenter: p.Name, Do: Leave, Kind: "role", Name: name, Account: account, Note: why})
}

// removeRole removes a role that was created here, if no other account has it.
func (s *Site) removeRole(ctx context.Context, p *Place, account string, role vcenter.Role) error {
	var used bool
	var err error
	if !s.DryRun { // no vCenter tells in advance whether it is used
		used, err = p.RemoveRole(ctx, role)
	}
	switch {
	case used:
		s.leaveRole(p, account, role.Name, "permissions of others have it")
	case err == nil:
		s.did(Change{VCenter: p.Name, Do: Remove, Kind: "role", Name: role.Name, Account: account})
	}
	return err
}
