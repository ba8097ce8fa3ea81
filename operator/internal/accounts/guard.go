package accounts

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// spare refuses to change who logged in, an account that would lose what it has for something
// else, and one that nobody has named in this run. An account that was made here is the
// drivers' alone, and what an earlier run has set may be set again.
func (s *Site) spare(r *record, p *Place, a account, plan *privileges.Plan) error {
	if privileges.SameUser(p.User, a.Username) {
		return s.spared(p, a, errors.New("it is the account that you are logged in with, and would be left with what the drivers need"))
	}
	if a.made {
		return nil
	}
	set := r.place(p.Name).permissionsOf(a.Username)
	changes, cut := 0, []privileges.PlannedPermission{}
	for _, x := range plan.Permissions {
		if x.State != privileges.Keep {
			changes++
		}
		_, before := set[x.ID]
		if again := before && x.Has != nil && isOurs(x.Has.Role); len(x.Loses) > 0 && !again {
			cut = append(cut, x)
		}
	}
	switch {
	case len(cut) > 0:
		return s.spared(p, a, errors.New("it has more than the drivers need, and would lose that: "+privileges.Losses(cut)))
	case changes > 0 && !a.named:
		return s.unnamed(a)
	}
	return nil
}

func (s *Site) spared(p *Place, a account, err error) error {
	hint := "name an account for the drivers alone: --principal NAME@DOMAIN"
	if a.kept {
		hint = "give the drivers an account of their own: vdoctl users rotate --username ADMIN --principal NAME@DOMAIN"
	}
	return &fault.Error{Reason: fault.Refused, Op: "give the drivers' roles to " + a.Username + " in", Subject: p.Server, Err: err, Hint: hint}
}

// unnamed refuses to give roles to an account that the Secret or the record names, and nobody
// else: who may write those need not be one who may give roles.
func (s *Site) unnamed(a account) error {
	return &fault.Error{Reason: fault.Refused, Op: "give the drivers' roles to", Subject: a.Username,
		Err:  fmt.Errorf("it was not made here: Secret %s/%s names it, and whoever may write that", s.Namespace, s.Secret),
		Hint: "if it is the drivers' account, name it: --principal " + fault.Quote(a.Username)}
}

// other refuses to take something from who logged in.
func (s *Site) other(r *record, account string, made bool) error {
	return s.each(func(p *Place) error {
		if !privileges.SameUser(p.User, account) || !r.touches(p, account, made) {
			return nil
		}
		return &fault.Error{Reason: fault.Refused, Op: "take the drivers' roles from " + account + " in", Subject: p.Server,
			Err: errors.New("it is the account that you are logged in with"), Hint: "log in as somebody else who may change the vCenter: --username NAME@DOMAIN"}
	})
}

// touches says whether something of an account is taken away in a vCenter.
func (r *record) touches(p *Place, account string, made bool) bool {
	return made || len(r.place(p.Name).permissionsOf(account)) > 0
}

// quiet waits until nobody uses an account, where something of it is taken away.
func (s *Site) quiet(ctx context.Context, r *record, account string, made bool) error {
	return s.each(func(p *Place) error {
		if !r.touches(p, account, made) {
			return nil
		}
		return s.unused(ctx, p, account)
	})
}

// qualified refuses what is no name of an account.
func qualified(name string) error {
	if render.QualifiedAccount(name) {
		return nil
	}
	return &fault.Error{Reason: fault.InvalidInput, Op: "use the account", Subject: fmt.Sprintf("%q", name),
		Err: errors.New("it has no domain, or characters that the drivers do not accept"), Hint: "write NAME@DOMAIN"}
}

func passwordless(op, account string) error {
	return &fault.Error{Reason: fault.InvalidInput, Op: op, Subject: account, Err: errors.New("it is not made here, and its password is not given"), Hint: "give it: --account-password-file FILE"}
}

func nameless(op string) error {
	return &fault.Error{Reason: fault.InvalidInput, Op: op, Err: errors.New("its password is given, and its name is not"), Hint: "name it, --principal NAME@DOMAIN; or leave --account-password-file and VDO_ACCOUNT_PASSWORD out, and it is made here"}
}
