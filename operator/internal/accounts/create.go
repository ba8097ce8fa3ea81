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
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// Create creates the account, roles and permissions, verifies them as the account, and writes the Secret. The name
// defaults to the Secret's account, else to one named after the cluster. If want has a password, the account already
// exists, in the vCenter or another directory, and is not created.
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
		r.Account, r.Made = want.Username, want.Password == "" && now.Username == ""
		r.Made = r.Made || a.kept && s.isOurs(ctx, now.Username)
		r.SecretMade = secret == nil && s.Output == nil
	}
	if !a.kept || want != now {
		if err := s.writable(r, secret); err != nil {
			return err
		}
	}
	a.Login, a.made = want, r.Made
	login, err := s.prepare(ctx, r, a)
	if err != nil {
		return err
	}
	if now == login {
		return s.arrived(ctx, r)
	}
	return s.writeSecret(ctx, r, secret, login)
}

func (s *Site) settle(ctx context.Context, r *record, now Login, want *Login) error {
	known := cmp.Or(r.Account, now.Username)
	another := want.Username != "" && known != "" && !s.same(ctx, known, want.Username)
	switch {
	case now.Username == "" && r.Account != "" && (another || r.Next != ""):
		return s.none(r)
	case now.Username != "" && r.Next == "" && !s.same(ctx, known, now.Username):
		return s.exchanged(known, now.Username)
	case r.Next != "":
		return s.conflict(fmt.Errorf("account %s is being replaced by %s", r.Account, r.Next),
			"finish that first: "+s.command("rotate"))
	case another:
		return s.conflict(fmt.Errorf("it is for account %s, not for %q", known, want.Username),
			"to change the account while drivers run: "+s.command("rotate", "--principal", fault.Quote(want.Username)))
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

// exchanged returns the fault of a Secret with another account than the one that was created for it.
func (s *Site) exchanged(known, now string) error {
	return s.conflict(fmt.Errorf("another person put %s into it, and %s was made for it", now, known),
		"put that one back, or take away what was made for it: "+s.command("delete"))
}

// none returns the fault of a Secret without an account: drivers may still run with the recorded one.
func (s *Site) none(r *record) error {
	f := &fault.Error{Reason: fault.NotFound, Op: "read the account of Secret", Subject: s.Namespace + "/" + s.Secret,
		Err: errors.New("there is none yet"), Hint: "make it: " + s.command("create")}
	if r.Account != "" {
		f.Err = fmt.Errorf("there is none, and %s was recorded for it", r.Account)
		f.Hint = credentials.PutBack + "; if no driver runs with it: " + s.command("create")
	}
	if r.Next != "" {
		f.Err = fmt.Errorf("there is none, and account %s was being replaced by %s", r.Account, r.Next)
		f.Hint = credentials.PutBack + "; if no driver runs with it: " + s.command("delete")
	}
	return f
}

func (s *Site) conflict(err error, hint string) error {
	return &fault.Error{Reason: fault.Conflict, Op: "use Secret", Subject: s.Namespace + "/" + s.Secret, Err: err, Hint: hint}
}

type account struct {
	Login

	named bool // in this run, by the administrator
	made  bool // created here, or to be
	kept  bool // its password is in the Secret
	late  bool // this run set its password at a linked vCenter
}

// prepare makes an account ready in all vCenters, and returns its login.
func (s *Site) prepare(ctx context.Context, r *record, a account) (Login, error) {
	found := make([]state, len(s.Places))
	s.known = map[string]bool{}
	for i, p := range s.Places {
		if err := s.look(ctx, r, p, a, &found[i]); err != nil {
			return Login{}, err
		}
	}
	if err := s.password(ctx, r, &a, found); err != nil {
		return Login{}, err
	}
	if !s.DryRun {
		if err := s.writeRecord(ctx, r); err != nil {
			return Login{}, err
		}
	}
	for i, p := range s.Places {
		if err := s.ready(ctx, p, a, found[i]); err != nil {
			return Login{}, err
		}
		if err := s.migrate(ctx, r, p, a, found[i].plan); err != nil {
			return Login{}, err
		}
	}
	return a.Login, nil
}

// migrate removes permissions that were set here and that roles of the plan now propagate to, such as those on each VM
// and host. The others may belong to a node that the plan lacks for a moment.
func (s *Site) migrate(ctx context.Context, r *record, p *Place, a account, plan *privileges.Plan) error {
	before := r.permissionsOf(ctx, p, a.Username)
	maps.DeleteFunc(before, func(id string, _ *privileges.Permission) bool {
		return !slices.Contains(plan.Covered, id)
	})
	if len(before) == 0 {
		return nil
	}
	return s.takePermissions(ctx, p, plan.Principal, a.made, before)
}

// password generates a new password for an account that is created here, if the Secret does not have its password.
func (s *Site) password(ctx context.Context, r *record, a *account, found []state) error {
	if !a.made || a.kept {
		return nil
	}
	if slices.ContainsFunc(found, func(f state) bool { return f.exists }) {
		if err := s.resettable(ctx, r, *a); err != nil {
			return err
		}
	}
	r.Run = rand.Text()
	a.Password = newPassword()
	return nil
}

// look computes the changes for an account in one vCenter, and records them.
func (s *Site) look(ctx context.Context, r *record, p *Place, a account, found *state) (err error) {
	linked, errLinked := p.Linked(ctx)
	found.shared = cmp.Or(linked, p.Name)
	if a.made {
		if found.exists, err = s.ours(ctx, p, a.Username); err == nil {
			found.days, err = p.PasswordDays(ctx)
		}
		err = cmp.Or(err, errLinked)
		if found.exists {
			s.known[found.shared] = false
		}
	}
	if err != nil {
		return err
	}
	if err := try(ctx, p, a); err != nil { // an accepted login also shows the account's name
		return err
	}
	plan, err := p.Plan(ctx, a.Username)
	if err != nil {
		return err
	}
	if err := s.spare(ctx, r, p, a, &plan); err != nil {
		return err
	}
	found.plan = &plan
	r.place(p).intend(&plan, r.permissionsOf(ctx, p, plan.Principal))
	return nil
}

// try logs in with the password of an account that is not created here, so that a wrong one fails before anything is
// changed. A login without roles is no fault.
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

// ours reports whether an account exists. One that was not created here is a fault.
func (s *Site) ours(ctx context.Context, p *Place, name string) (bool, error) {
	found, err := p.Account(ctx, name)
	if err != nil || !found.Exists || found.Description == s.description() {
		return found.Exists, err
	}
	return true, &fault.Error{Reason: fault.Conflict, Op: "make the account " + name + " in", Subject: p.Server,
		Err:  errors.New("there is one, and it was not made for this Secret of this cluster"),
		Hint: "name another one, --principal NAME@DOMAIN, or give the password of this one: --account-password-file FILE"}
}

func (s *Site) isOurs(ctx context.Context, name string) bool {
	return slices.ContainsFunc(s.Places, func(p *Place) bool {
		exists, err := s.ours(ctx, p, name)
		return exists && err == nil
	})
}

type state struct {
	exists bool
	shared string // identifies linked vCenters
	plan   *privileges.Plan
	days   int // until its password expires; 0 if it never does
}

func (s *Site) ready(ctx context.Context, p *Place, a account, st state) error {
	a.late = s.known[st.shared] && !a.kept
	if err := s.login(ctx, p, a, st); err != nil {
		return err
	}
	if err := s.grant(ctx, p, a.Username, st); err != nil || s.DryRun {
		return err
	}
	return s.verify(ctx, p, a)
}

// login creates the account, or sets a new password if no Secret has its password.
func (s *Site) login(ctx context.Context, p *Place, a account, st state) error {
	note := ""
	if st.days > 0 {
		note = fmt.Sprintf("its password expires after %d days: %s before", st.days, s.command("rotate"))
	}
	fresh, known := s.known[st.shared]
	if known && !st.exists {
		err := s.replicated(ctx, p, "account "+a.Username, func() (bool, error) { return s.ours(ctx, p, a.Username) })
		if err != nil {
			return err
		}
	}
	if !a.made || known && (a.kept || fresh) {
		return nil
	}
	s.known[st.shared] = true
	s.days = min(cmp.Or(s.days, st.days), cmp.Or(st.days, s.days))
	c := Change{VCenter: p.Name, Do: Make, Kind: "account", Name: a.Username, Account: a.Username, Note: note}
	if !known {
		return s.act(c, func() error { return p.MakeAccount(ctx, a.Username, s.description(), a.Password) })
	}
	c.Do = Reset
	return s.act(c, func() error { return p.SetPassword(ctx, a.Username, a.Password) })
}

// replicated waits until an account or a role that was created at a linked vCenter is visible: creating it twice would
// be a conflict.
func (s *Site) replicated(ctx context.Context, p *Place, what string, visible func() (bool, error)) error {
	return s.until(ctx, "wait for "+what, func() (string, error) {
		if found, err := visible(); err != nil || found {
			return "", err
		}
		return fmt.Sprintf("%s was made at a linked vCenter, and is not visible at %s yet", what, p.Server), nil
	}, "see the replication of the linked vCenters, and run the same command again")
}

func (s *Site) grant(ctx context.Context, p *Place, account string, st state) error {
	roles, err := s.makeRoles(ctx, p, account, st)
	if err != nil {
		return err
	}
	for _, x := range st.plan.Permissions {
		if x.State == privileges.Keep {
			continue
		}
		note := ""
		if x.Has != nil {
			note = "instead of " + shown(*x.Has)
		}
		err := s.act(Change{VCenter: p.Name, Do: Set, Kind: "permission", Name: x.Role, Account: account, On: x.Path, Note: note}, func() error {
			role, ok := roles[x.Role]
			if !ok {
				return &fault.Error{Reason: fault.NotFound, Op: "set permissions in", Subject: p.Server, Err: fmt.Errorf("the role %s is gone", x.Role), Hint: "run the same command again"}
			}
			return p.SetPermission(ctx, x.ID, st.plan.Principal, role, x.Propagate)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Site) makeRoles(ctx context.Context, p *Place, account string, st state) (map[string]vcenter.Role, error) {
	roles, err := p.Roles(ctx)
	if err != nil {
		return nil, err
	}
	for i := range st.plan.Roles {
		x := &st.plan.Roles[i]
		shared := st.shared + " " + x.Name
		if x.State == privileges.Create && s.known[shared] {
			err = s.replicated(ctx, p, "role "+x.Name, func() (bool, error) {
				roles, err := p.Roles(ctx)
				return roles[x.Name].Name != "", err
			})
		} else {
			err = s.makeRole(ctx, p, account, x, roles)
		}
		if err != nil {
			return nil, err
		}
		s.known[shared] = true
	}
	return p.Roles(ctx)
}

// makeRole creates a role, or adds the missing privileges to the existing one.
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

func union(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// settleTime is how long a vCenter may take until new permissions are effective.
const settleTime = time.Minute

// verify checks the vCenter as the account until no privilege is missing. It ends at a fault that does not pass by
// itself: a refused password is tried once, so that it locks no account. One that was set at a linked vCenter is
// tried again once, after the time of a replication.
func (s *Site) verify(ctx context.Context, p *Place, a account) (failed error) {
	const again = "the Secret is not written; run the same command again, and see what overrules the permissions: vdoctl users plan"
	op := "verify account " + a.Username + " in " + p.Server
	every := s.Poll
	if a.late {
		every = 15 * cmp.Or(every, 2*time.Second)
	}
	err := clusterstate.Until(ctx, settleTime, every, op, again, func() (string, error) {
		missing, err := p.Verify(ctx, a.Login)
		r, hint := fault.ReasonOf(err), cmp.Or(fault.HintOf(err), again)
		if r == fault.Unauthorized && a.made && a.kept {
			hint = "give the drivers another account: " + s.command("rotate")
		}
		switch {
		case r == fault.Unauthorized && a.late:
			a.late = false
			return err.Error(), nil //nolint:nilerr // it is waited for
		case err != nil && r != fault.Forbidden && !r.Passing():
			failed = &fault.Error{Reason: fault.Incomplete, Op: op, Err: err, Hint: hint}
		case err != nil: // it has no role yet, or the vCenter is away
			return err.Error(), nil //nolint:nilerr // it is waited for
		case len(missing) > 0:
			slices.Sort(missing)
			return "the vCenter says that it still lacks " + strings.Join(missing, "; "), nil
		}
		return "", nil
	})
	return cmp.Or(err, failed)
}

// spare refuses to change the administrator's account, an account that would lose other permissions, and one that this
// run does not name. An account that was created here is only the drivers'. Permissions of an earlier run may be set
// again.
func (s *Site) spare(ctx context.Context, r *record, p *Place, a account, plan *privileges.Plan) error {
	if p.same(ctx, p.User, a.Username) {
		return s.spared(p, a, errors.New("it is the account that you are logged in with, and would be left with what the drivers need"))
	}
	if a.made {
		return nil
	}
	set := r.permissionsOf(ctx, p, a.Username)
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
		// Users who may write the Secret or the record may not be allowed to give roles.
		return &fault.Error{Reason: fault.Refused, Op: "give the drivers' roles to", Subject: a.Username,
			Err:  fmt.Errorf("it was not made here: Secret %s/%s names it, and whoever may write that", s.Namespace, s.Secret),
			Hint: "if it is the drivers' account, name it: --principal " + fault.Quote(a.Username)}
	}
	return nil
}

func (s *Site) spared(p *Place, a account, err error) error {
	hint := "name an account for the drivers alone: --principal NAME@DOMAIN"
	if a.kept {
		hint = "give the drivers an account of their own: " + s.command("rotate", "--principal NAME@DOMAIN")
	}
	return &fault.Error{Reason: fault.Refused, Op: "give the drivers' roles to " + a.Username + " in", Subject: p.Server, Err: err, Hint: hint}
}

func (s *Site) other(ctx context.Context, r *record, account string, made bool) error {
	for _, p := range s.Places {
		if p.same(ctx, p.User, account) && r.touches(ctx, p, account, made) {
			return &fault.Error{Reason: fault.Refused, Op: "take the drivers' roles from " + account + " in", Subject: p.Server,
				Err: errors.New("it is the account that you are logged in with"), Hint: "log in with another account that may change the vCenter: --username NAME@DOMAIN"}
		}
	}
	return nil
}

// touches reports whether a removal changes anything of an account in a vCenter.
func (r *record) touches(ctx context.Context, p *Place, account string, made bool) bool {
	return made || len(r.permissionsOf(ctx, p, account)) > 0
}

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

// newPassword returns a password of 20 characters, a vCenter's default maximum, of which 18 are random: 90 bits. It
// meets the default rules; stricter ones need an account made by hand. No character needs an escape in a shell, YAML
// or the drivers' configuration.
func newPassword() vcenter.Password {
	const half = 9
	return vcenter.Password("9-" + rand.Text()[:half] + strings.ToLower(rand.Text()[:half]))
}
