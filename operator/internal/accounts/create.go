package accounts

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// Create makes the account, the roles and the permissions, verifies them as the account,
// and writes the Secret. Without a name the account is that of the Secret, or one that is
// named after the cluster. With a password the account is one that exists, elsewhere or
// here, and it is made nowhere.
func (s *Site) Create(ctx context.Context, want Login) error {
	r, secret, now, err := s.read(ctx)
	if err != nil {
		return err
	}
	a := account{named: want.Username != "", kept: now.Password != ""}
	if err := s.settle(ctx, r, now, &want); err != nil {
		return err
	}
	if r.Account == "" {
		r.Account, r.Made, r.SecretMade = want.Username, want.Password == "" && now.Username == "", secret == nil
	}
	a.Login, a.made = want, r.Made
	login, err := s.prepare(ctx, r, a)
	if refused := (refusedLogin{}); a.made && a.kept && errors.As(err, &refused) {
		a.kept, a.refused = false, now.Password
		login, err = s.prepare(ctx, r, a)
	}
	if err != nil || now == login {
		return err
	}
	return s.writeSecret(ctx, secret, login)
}

// settle decides which account it is about, and which password it has.
func (s *Site) settle(ctx context.Context, r *record, now Login, want *Login) error {
	known := cmp.Or(r.Account, now.Username)
	switch {
	case now.Username != "" && r.Next == "" && !privileges.SameUser(known, now.Username):
		return s.exchanged(known, now.Username)
	case r.Next != "":
		return s.conflict(fmt.Errorf("account %s is being replaced by %s", r.Account, r.Next), "finish that first: vdoctl users rotate --username ADMIN")
	case want.Username != "" && known != "" && !privileges.SameUser(known, want.Username):
		return s.conflict(fmt.Errorf("it is for account %s, not for %q", known, want.Username), "to change the account while drivers run: vdoctl users rotate --username ADMIN --principal "+fault.Quote(want.Username))
	case want.Username == "" && known == "" && want.Password != "":
		return nameless("make ready an account")
	case want.Username == "" && known == "":
		domain, err := s.Places[0].Domain(ctx)
		if err != nil {
			return err
		}
		known = s.DefaultName(domain)
	}
	want.Username = cmp.Or(want.Username, known)
	want.Password = cmp.Or(want.Password, now.Password)
	if here := r.Made || r.Account == "" && now.Username == ""; !here && want.Password == "" {
		return passwordless("make ready account", want.Username)
	}
	return qualified(want.Username)
}

// exchanged says that the Secret has another account than the one that was made for it.
func (s *Site) exchanged(known, now string) error {
	return s.conflict(fmt.Errorf("somebody put %s into it, and %s was made for it", now, known), "put that one back, or take away what was made for it: vdoctl users delete --username ADMIN")
}

func (s *Site) conflict(err error, hint string) error {
	return &fault.Error{Reason: fault.Conflict, Op: "use Secret", Subject: s.Namespace + "/" + s.Secret, Err: err, Hint: hint}
}

// account is one that is to be made ready.
type account struct {
	Login

	named bool // in this run, by who gives it roles
	made  bool // here, or to be
	kept  bool // its password is in the Secret
	// refused is the Secret's password, where a vCenter refuses it.
	refused vcenter.Password
}

// refusedLogin says that a vCenter refuses a password.
type refusedLogin struct{ error }

func (r refusedLogin) Unwrap() error { return r.error }

// prepare makes an account ready in all vCenters, and returns how to log in with it.
func (s *Site) prepare(ctx context.Context, r *record, a account) (Login, error) {
	found := make([]state, len(s.Places))
	rules := vcenter.PasswordRules{}
	for i := range s.Places {
		if err := s.look(ctx, r, &s.Places[i], a, &found[i], &rules); err != nil {
			return Login{}, err
		}
	}
	if err := s.password(ctx, r, &a, found, rules); err != nil {
		return Login{}, err
	}
	if !s.DryRun {
		if err := s.writeRecord(ctx, r); err != nil {
			return Login{}, err
		}
	}
	for i := range s.Places {
		found[i].days = rules.Days
		if err := s.ready(ctx, &s.Places[i], a, found[i]); err != nil {
			return Login{}, err
		}
		if err := s.migrate(ctx, r, &s.Places[i], a, found[i].plan); err != nil {
			return Login{}, err
		}
	}
	return a.Login, nil
}

// migrate takes the permissions away that were set here on each VM and host, where the plan has
// roles that propagate to them.
func (s *Site) migrate(ctx context.Context, r *record, p *Place, a account, plan *privileges.Plan) error {
	before := r.place(p.Name).permissionsOf(a.Username)
	maps.DeleteFunc(before, func(id string, _ *privileges.Permission) bool {
		return !strings.HasPrefix(id, "VirtualMachine-") && !strings.HasPrefix(id, "HostSystem-") ||
			slices.ContainsFunc(plan.Permissions, func(x privileges.PlannedPermission) bool { return x.ID == id })
	})
	if len(before) == 0 {
		return nil
	}
	return s.takePermissions(ctx, p, before, permission{account: plan.Principal, own: a.made})
}

// password gives an account that is made here another one, where the Secret does not have
// the one that it has.
func (s *Site) password(ctx context.Context, r *record, a *account, found []state, rules vcenter.PasswordRules) (err error) {
	if !a.made || a.kept {
		return nil
	}
	if slices.ContainsFunc(found, func(f state) bool { return f.exists }) {
		if err := s.resettable(ctx, *a); err != nil {
			return err
		}
	}
	r.Run = rand.Text()
	a.Password, err = newPassword(rules)
	return err
}

// look finds out what is to be done for an account in one vCenter, and notes it.
func (s *Site) look(ctx context.Context, r *record, p *Place, a account, found *state, rules *vcenter.PasswordRules) (err error) {
	if a.made {
		if found.exists, err = s.ours(ctx, p, a.Username); err == nil {
			*rules, err = stricter(ctx, p, *rules)
		}
	}
	if err != nil {
		return err
	}
	plan, err := p.Plan(ctx, a.Username)
	if err != nil {
		return err
	}
	if err := s.spare(r, p, a, &plan); err != nil {
		return err
	}
	if err := try(ctx, p, a); err != nil {
		return err
	}
	found.plan = &plan
	return s.intend(ctx, r, p, &plan)
}

// try logs in with the password of an account that is made elsewhere, so that a wrong one is
// known before anything is changed. That the account has no role yet is no fault.
func try(ctx context.Context, p *Place, a account) error {
	if a.made {
		return nil
	}
	_, err := p.Verify(ctx, a.Login)
	switch fault.ReasonOf(err) {
	case fault.Unauthorized, fault.AccountLocked, fault.InvalidInput:
		return err
	}
	return nil
}

// ours says whether an account is there. One that was not made here is a fault.
func (s *Site) ours(ctx context.Context, p *Place, name string) (bool, error) {
	found, err := p.Account(ctx, name)
	if err != nil || !found.Exists || found.Description == s.description() {
		return found.Exists, err
	}
	return true, &fault.Error{Reason: fault.Conflict, Op: "make the account " + name + " in", Subject: p.Server,
		Err:  errors.New("there is one, and it was not made for this Secret of this cluster"),
		Hint: "name another one, --principal NAME@DOMAIN, or give the password of this one: --account-password-file FILE"}
}

// stricter is what satisfies the rules of one more vCenter.
func stricter(ctx context.Context, p *Place, r vcenter.PasswordRules) (vcenter.PasswordRules, error) {
	more, err := p.PasswordRules(ctx)
	if err != nil {
		return r, err
	}
	out := vcenter.PasswordRules{Least: max(r.Least, more.Least), Most: more.Most, Days: more.Days, Upper: max(r.Upper, more.Upper), Lower: max(r.Lower, more.Lower),
		Alphabetic: max(r.Alphabetic, more.Alphabetic), Numeric: max(r.Numeric, more.Numeric), Special: max(r.Special, more.Special)}
	if r.Most > 0 && (more.Most == 0 || r.Most < more.Most) {
		out.Most = r.Most
	}
	if r.Days > 0 && (more.Days == 0 || r.Days < more.Days) {
		out.Days = r.Days
	}
	return out, nil
}

// intend notes in the record what will be changed.
func (s *Site) intend(ctx context.Context, r *record, p *Place, plan *privileges.Plan) error {
	roles, err := p.Roles(ctx)
	if err != nil {
		return err
	}
	has := map[string][]string{}
	for name, role := range roles {
		has[name] = role.Privileges
	}
	r.place(p.Name).intend(plan, has)
	return nil
}

// state is what was found of an account in one vCenter.
type state struct {
	exists bool
	plan   *privileges.Plan
	days   int // until its password expires; 0 for never
}

// ready does in one vCenter what is left to do.
func (s *Site) ready(ctx context.Context, p *Place, a account, st state) error {
	if err := s.login(ctx, p, a, st); err != nil {
		return err
	}
	if err := s.grant(ctx, p, a.Username, st.plan); err != nil || s.DryRun {
		return err
	}
	return s.verify(ctx, p, a.Login)
}

// login makes the account, or gives one a password that is in no Secret.
func (s *Site) login(ctx context.Context, p *Place, a account, st state) error {
	note := ""
	if st.days > 0 {
		note = fmt.Sprintf("its password expires after %d days: vdoctl users rotate --username ADMIN before", st.days)
	}
	switch {
	case !a.made, st.exists && a.kept:
		return nil
	case st.exists:
		return s.act(Change{VCenter: p.Name, Do: Reset, Kind: "account", Name: a.Username, Account: a.Username, Note: note}, func() error {
			return p.SetPassword(ctx, a.Username, a.Password)
		})
	}
	if now, err := s.ours(ctx, p, a.Username); err != nil || now {
		return err // vCenters that are linked share their accounts: it was made a moment ago
	}
	return s.act(Change{VCenter: p.Name, Do: Make, Kind: "account", Name: a.Username, Account: a.Username, Note: note}, func() error {
		return p.MakeAccount(ctx, a.Username, s.description(), a.Password)
	})
}

// grant makes roles and sets permissions as a plan says.
func (s *Site) grant(ctx context.Context, p *Place, account string, plan *privileges.Plan) error {
	roles, err := s.makeRoles(ctx, p, account, plan)
	if err != nil {
		return err
	}
	for _, x := range plan.Permissions {
		if x.State == privileges.Keep {
			continue
		}
		err := s.act(Change{VCenter: p.Name, Do: Set, Kind: "permission", Name: x.Role, Account: account, On: x.Path, Note: instead(x.Has)}, func() error {
			role, ok := roles[x.Role]
			if !ok {
				return &fault.Error{Reason: fault.NotFound, Op: "set permissions in", Subject: p.Server, Err: fmt.Errorf("the role %s is gone", x.Role), Hint: "run the same command again"}
			}
			return p.SetPermission(ctx, x.ID, plan.Principal, role, x.Propagate)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// instead names the permission that another one takes the place of.
func instead(has *privileges.Permission) string {
	if has == nil {
		return ""
	}
	return "instead of " + shown(*has)
}

func (s *Site) makeRoles(ctx context.Context, p *Place, account string, plan *privileges.Plan) (map[string]vcenter.Role, error) {
	roles, err := p.Roles(ctx)
	if err != nil {
		return nil, err
	}
	for i := range plan.Roles {
		if err := s.makeRole(ctx, p, account, &plan.Roles[i], roles); err != nil {
			return nil, err
		}
	}
	return p.Roles(ctx)
}

// makeRole makes a role, or adds to the one that is there what it lacks.
func (s *Site) makeRole(ctx context.Context, p *Place, account string, x *privileges.PlannedRole, roles map[string]vcenter.Role) error {
	if len(x.TooMuch) > 0 {
		s.leaveRole(p, account, x.Name, "it has more than is needed here, and others may have it for that: "+strings.Join(x.TooMuch, " "))
	}
	switch x.State {
	case privileges.Create:
		return s.act(Change{VCenter: p.Name, Do: Make, Kind: "role", Name: x.Name, Account: account, Note: strings.Join(x.Privileges, " ")}, func() error {
			return p.MakeRole(ctx, x.Name, x.Privileges)
		})
	case privileges.Change:
		return s.act(Change{VCenter: p.Name, Do: Edit, Kind: "role", Name: x.Name, Account: account, Note: "adds " + strings.Join(x.Add, " ")}, func() error {
			return p.ChangeRole(ctx, roles[x.Name], union(roles[x.Name].Privileges, x.Privileges))
		})
	}
	return nil
}

// union is what either has, sorted.
func union(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// settleTime is how long a vCenter may take until an account has what it was given.
const settleTime = time.Minute

// verify asks the vCenter, as the account, until nothing is missing.
func (s *Site) verify(ctx context.Context, p *Place, l Login) error {
	_, poll := s.patience()
	end := time.Now().Add(settleTime)
	for {
		missing, err := p.Verify(ctx, l)
		if err == nil && len(missing) == 0 {
			return nil
		}
		if r := fault.ReasonOf(err); time.Now().After(end) || r != "" && r != fault.Forbidden && !r.Passing() {
			slices.Sort(missing)
			if r == fault.Unauthorized {
				err = refusedLogin{err}
			}
			if err == nil {
				err = fmt.Errorf("the vCenter says that it still lacks %s", strings.Join(missing, "; "))
			}
			hint := "the Secret is not written; run the same command again, and see what overrules the permissions: vdoctl users plan"
			return &fault.Error{Reason: fault.Incomplete, Op: "verify account " + l.Username + " in", Subject: p.Server, Err: err, Hint: cmp.Or(fault.HintOf(err), hint)}
		}
		if err := pause(ctx, poll); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return &fault.Error{Reason: fault.Interrupted, Op: "wait", Err: ctx.Err(), Hint: "run the same command again"}
	case <-time.After(d):
		return nil
	}
}
