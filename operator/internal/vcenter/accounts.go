package vcenter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/vmware/govmomi/lookup"
	lookupmethods "github.com/vmware/govmomi/lookup/methods"
	lookuptypes "github.com/vmware/govmomi/lookup/types"
	"github.com/vmware/govmomi/ssoadmin"
	ssomethods "github.com/vmware/govmomi/ssoadmin/methods"
	ssotypes "github.com/vmware/govmomi/ssoadmin/types"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
)

// errNoDirectory is the error of a vCenter whose accounts cannot be managed through it.
var errNoDirectory = errors.New("its single sign-on cannot be administered from here")

// directory returns a session for the administration of the vCenter's own accounts (single sign-on). It has its own
// login, with a token for the same account and password. It takes only paths from the vCenter's lookup service, so
// that the password goes to no other host.
func (a *Admin) directory(ctx context.Context) (*ssoadmin.Client, error) {
	if a.sso != nil {
		return a.sso, nil
	}
	c, err := a.openDirectory(ctx)
	if err != nil {
		return nil, a.directoryFault(err)
	}
	a.sso = c
	return c, nil
}

func (a *Admin) directoryFault(err error) error {
	f := &fault.Error{Reason: fault.Refused, Op: "administer the accounts of", Subject: a.target.Address(), Err: err,
		Hint: "make the account there, in the vCenter's single sign-on or the directory behind it, and name it: --principal NAME@DOMAIN --account-password-file FILE"}
	switch {
	case is[*types.NoPermission](err), is[*types.NotAuthenticated](err):
		f.Reason, f.Err = fault.Forbidden, fmt.Errorf("%s is no administrator of the single sign-on", a.target.Username)
		f.Hint = "log in as one, --username administrator@vsphere.local; or " + f.Hint
	case is[*types.InvalidLogin](err):
		f.Reason, f.Err = fault.Unauthorized, fmt.Errorf("it does not accept %s", a.target.Username)
	case soap.IsSoapFault(err), errors.Is(err, errNoDirectory):
	default:
		return a.fault("administer the accounts of", err)
	}
	return f
}

func (a *Admin) openDirectory(ctx context.Context) (*ssoadmin.Client, error) {
	services, err := a.services(ctx)
	if err != nil {
		return nil, err
	}
	sc := a.serviceOf(services.admin, ssoadmin.Namespace)
	sc.Version = ssoadmin.Version
	c := &ssoadmin.Client{Client: sc, RoundTripper: sc, Domain: services.domain(), Limit: math.MaxInt32}
	content, err := ssomethods.SsoAdminServiceInstance(ctx, c, &ssotypes.SsoAdminServiceInstance{This: ssoadmin.ServiceInstance})
	if err != nil {
		return nil, err
	}
	c.ServiceContent = content.Returnval
	signer, err := a.signer(ctx)
	if err != nil {
		return nil, err
	}
	return c, c.Login(c.WithHeader(ctx, soap.Header{Security: signer}))
}

// services are the URLs of the single sign-on services, and the vCenters that share it.
type services struct {
	admin, token string
	linked       []string // instance UUIDs, sorted
}

func (s services) domain() string { return path.Base(s.admin) }

func (a *Admin) services(ctx context.Context) (services, error) {
	sc := a.serviceOf(lookup.Path, lookup.Namespace)
	sc.Version = lookup.Version
	lu := &lookup.Client{Client: sc, RoundTripper: sc}
	content, err := lookupmethods.RetrieveServiceContent(ctx, lu, &lookuptypes.RetrieveServiceContent{This: lookup.ServiceInstance})
	if err != nil {
		return services{}, errNoDirectory
	}
	lu.ServiceContent = content.Returnval
	found := services{
		admin: endpoint(ctx, lu, "vmomi", "com.vmware.cis.cs.identity.admin"),
		token: endpoint(ctx, lu, "wsTrust", "com.vmware.cis.cs.identity.sso"),
	}
	if found.admin == "" {
		return found, errNoDirectory
	}
	// A vCenter registers itself by its instance UUID: govmomi v0.56.0, lookup/simulator/registration_info.go.
	kind := &lookuptypes.LookupServiceRegistrationServiceType{Product: "com.vmware.cis", Type: "vcenterserver"}
	servers, err := lu.List(ctx, &lookuptypes.LookupServiceRegistrationFilter{ServiceType: kind})
	for i := range servers {
		found.linked = append(found.linked, servers[i].ServiceId)
	}
	slices.Sort(found.linked)
	return found, err
}

// Linked returns the vCenters that share their accounts with this one: each of them returns the same text.
func (a *Admin) Linked(ctx context.Context) (string, error) {
	found, err := a.services(ctx)
	if err != nil {
		return "", a.directoryFault(err)
	}
	return strings.Join(found.linked, " "), nil
}

// Canonical returns the one name of an account: DOMAIN\name as the vCenter answered a login, or with the domain's own
// name for an alias. Single sign-on knows the aliases, such as CORP of corp.example. Without the right to read them
// only login answers count.
func (a *Admin) Canonical(ctx context.Context, name string) string {
	domain, _, ok := strings.Cut(privileges.DomainUser(name), `\`)
	own, _, _ := strings.Cut(privileges.DomainUser(a.User), `\`)
	if ok && a.aliases == nil && !strings.EqualFold(domain, own) {
		a.aliases = map[string]string{}
		if c, err := a.directory(ctx); err == nil {
			sources, err := c.IdentitySources(ctx)
			for _, x := range domains(sources, err) {
				a.aliases[strings.ToLower(x.Alias)] = strings.ToUpper(x.Name)
			}
		}
	}
	return a.plain(name)
}

func domains(s *ssotypes.IdentitySources, err error) []ssotypes.Domain {
	if err != nil {
		return nil
	}
	out := s.System.Domains
	for _, x := range []*ssotypes.IdentitySource{s.LocalOS, s.NativeAD} {
		if x != nil {
			out = slices.Concat(out, x.Domains)
		}
	}
	for i := range s.LDAPS {
		out = slices.Concat(out, s.LDAPS[i].Domains)
	}
	return out
}

// Learn records the name that the vCenter answered a login with.
func (a *Admin) Learn(name, answered string) {
	if a.answers == nil {
		a.answers = map[string]string{}
	}
	a.answers[strings.ToLower(privileges.DomainUser(name))] = answered
}

// plain returns the canonical name as far as answers and aliases are known.
func (a *Admin) plain(name string) string {
	n := privileges.DomainUser(name)
	n = privileges.DomainUser(cmp.Or(a.answers[strings.ToLower(n)], n))
	domain, user, ok := strings.Cut(n, `\`)
	if full := a.aliases[strings.ToLower(domain)]; ok && full != "" {
		return full + `\` + user
	}
	return n
}

func (a *Admin) same(x, y string) bool { return strings.EqualFold(a.plain(x), a.plain(y)) }

func endpoint(ctx context.Context, lu *lookup.Client, protocol, kind string) string {
	found, err := lu.List(ctx, &lookuptypes.LookupServiceRegistrationFilter{
		ServiceType:  &lookuptypes.LookupServiceRegistrationServiceType{Product: "com.vmware.cis", Type: "cs.identity"},
		EndpointType: &lookuptypes.LookupServiceRegistrationEndpointType{Protocol: protocol, Type: kind}})
	if err != nil || len(found) == 0 || len(found[0].ServiceEndpoints) == 0 {
		return ""
	}
	u, err := url.Parse(found[0].ServiceEndpoints[0].Url)
	if err != nil {
		return ""
	}
	return u.Path
}

// Account is one of the vCenter's own accounts.
type Account struct {
	Exists      bool
	Description string
}

// Domain returns the domain of the vCenter's own accounts.
func (a *Admin) Domain(ctx context.Context) (string, error) {
	c, err := a.directory(ctx)
	if err != nil {
		return "", err
	}
	return c.Domain, nil
}

// Account finds an account by NAME@DOMAIN.
func (a *Admin) Account(ctx context.Context, name string) (out Account, err error) {
	err = a.inDirectory(ctx, name, func(c *ssoadmin.Client, local string) error {
		found, err := c.FindPersonUser(ctx, local+"@"+c.Domain)
		if found != nil {
			out = Account{Exists: true, Description: found.Details.Description}
		}
		return err
	})
	return out, err
}

func (a *Admin) inDirectory(ctx context.Context, name string, do func(*ssoadmin.Client, string) error) error {
	c, err := a.directory(ctx)
	if err != nil {
		return err
	}
	domain, local, _ := strings.Cut(privileges.DomainUser(name), `\`)
	if strings.EqualFold(domain, c.Domain) {
		err = do(c, local)
	} else {
		err = fmt.Errorf("%w: accounts of %s are not its own, those of %s are", errNoDirectory, strings.ToLower(domain), c.Domain)
	}
	return a.directoryFault(err)
}

// MakeAccount creates an account.
func (a *Admin) MakeAccount(ctx context.Context, name, description string, password Password) error {
	return a.inDirectory(ctx, name, func(c *ssoadmin.Client, local string) error {
		return c.CreatePersonUser(ctx, local, ssotypes.AdminPersonDetails{Description: description, FirstName: "vSphere drivers", LastName: "Kubernetes"}, string(password))
	})
}

// SetPassword sets an account's password.
func (a *Admin) SetPassword(ctx context.Context, name string, password Password) error {
	return a.inDirectory(ctx, name, func(c *ssoadmin.Client, local string) error {
		return c.ResetPersonPassword(ctx, local, string(password))
	})
}

// RemoveAccount removes an account. A missing one is no error.
func (a *Admin) RemoveAccount(ctx context.Context, name string) error {
	return a.inDirectory(ctx, name, func(c *ssoadmin.Client, local string) error {
		err := c.DeletePrincipal(ctx, local)
		if is[*types.NotFound](err) {
			return nil
		}
		return err
	})
}

// PasswordDays returns after how many days a password expires; 0 for never.
func (a *Admin) PasswordDays(ctx context.Context) (int, error) {
	c, err := a.directory(ctx)
	if err != nil {
		return 0, err
	}
	p, err := c.GetLocalPasswordPolicy(ctx)
	if err != nil {
		return 0, a.directoryFault(err)
	}
	return int(p.PasswordLifetimeDays), nil
}
