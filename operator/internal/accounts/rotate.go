package accounts

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
)

// Rotate replaces the Secret's account by another one, and removes the first once it is unused. It continues an
// interrupted rotation.
func (s *Site) Rotate(ctx context.Context, want Login) error {
	r, secret, now, err := s.read(ctx)
	if err != nil {
		return err
	}
	if now.Username == "" {
		return s.none(r)
	}
	if len(s.Places) == 0 {
		return s.conflict(errors.New("no vCenter of its account is left"), "remove the account: "+s.command("delete"))
	}
	a := account{named: want.Username != ""}
	if err := s.begin(ctx, r, now, &want); err != nil {
		return err
	}
	a.Login, a.made = want, r.NextMade
	if !s.same(ctx, now.Username, r.Next) {
		if err := s.replace(ctx, r, secret, a); err != nil || s.Output != nil {
			return err // a later run continues once the cluster has the printed Secret
		}
	}
	if err := s.switched(ctx, r); err != nil {
		return err
	}
	return s.retire(ctx, r)
}

func (s *Site) begin(ctx context.Context, r *record, now Login, want *Login) error {
	if r.Account == "" {
		r.Account, r.Made = now.Username, s.isOurs(ctx, now.Username) // the record may be lost
	}
	is := func(name string) bool { return s.same(ctx, now.Username, name) }
	switch {
	case r.Next == "" && !is(r.Account):
		return s.exchanged(r.Account, now.Username)
	case r.Next == "":
		r.Printed = false // the cluster has that account
		if err := s.choose(ctx, r, *want); err != nil {
			return err
		}
	case want.Username != "" && !s.same(ctx, want.Username, r.Next):
		return s.conflict(fmt.Errorf("account %s is being replaced by %s, not by %q", r.Account, r.Next, want.Username),
			"finish that first: "+s.command("rotate")+", without --principal")
	case !is(r.Account) && !is(r.Next):
		return s.conflict(fmt.Errorf("account %s is being replaced by %s, and another person put %s into it", r.Account, r.Next, now.Username), "put one of the two back with its password, and run it again")
	}
	want.Username = r.Next
	if !r.NextMade && want.Password == "" && !is(r.Next) {
		return passwordless("rotate to account", r.Next)
	}
	return s.other(ctx, r, r.Account, r.Made)
}

func (s *Site) choose(ctx context.Context, r *record, want Login) error {
	r.Next, r.NextMade = want.Username, want.Password == ""
	switch {
	case r.Next == "" && !r.NextMade:
		return nameless("rotate to an account")
	case r.Next == "" && r.Made:
		r.Next = successor(r.Account)
	case r.Next == "":
		domain, err := s.Places[0].Domain(ctx)
		if err != nil {
			return err
		}
		if r.Next = s.DefaultName(domain); s.same(ctx, r.Next, r.Account) {
			r.Next = successor(r.Account)
		}
	case s.same(ctx, r.Next, r.Account):
		return s.conflict(fmt.Errorf("%s is its account already", r.Next), "name another one: an account has one password, so that two are needed for a change without an interruption")
	}
	return qualified(r.Next)
}

func (s *Site) replace(ctx context.Context, r *record, secret *corev1.Secret, a account) error {
	if err := s.writable(r, secret); err != nil {
		return err
	}
	login, err := s.prepare(ctx, r, a)
	if err != nil {
		return err
	}
	if !s.DryRun {
		if r.Templates, err = s.templates(ctx, r.Account); err != nil {
			return err
		}
		if err := s.writeRecord(ctx, r); err != nil {
			return err
		}
	}
	return s.writeSecret(ctx, r, secret, login)
}

func (s *Site) switched(ctx context.Context, r *record) error {
	s.did(Change{Do: Wait, Kind: "drivers", Name: "until all run with account " + r.Next, Account: r.Next})
	return s.until(ctx, "wait for the drivers", func() (string, error) { return s.behind(ctx, r) },
		fmt.Sprintf("both accounts, %s and %s, work meanwhile; see why with vdoctl status, and run the same command "+
			"again. If %[2]s is refused, put %[1]s with its password back into the Secret", r.Account, r.Next))
}

// retire removes the previous account, unless another program logs in with it.
func (s *Site) retire(ctx context.Context, r *record) error {
	if err := s.quiet(ctx, r, r.Account, r.Made); err != nil {
		return err
	}
	if err := s.takeAway(ctx, r, r.Account, r.Made); err != nil {
		return err
	}
	s.elsewhere(r)
	if s.DryRun {
		return nil
	}
	for _, p := range s.Places {
		of := r.place(p).Permissions
		maps.DeleteFunc(of, func(account string, _ map[string]*privileges.Permission) bool {
			return s.same(ctx, account, r.Account)
		})
	}
	r.Account, r.Made, r.Next, r.NextMade, r.Templates, r.Printed = r.Next, r.NextMade, "", false, nil, false
	return s.writeRecord(ctx, r)
}
