package vcenter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"path"
	"strings"

	"github.com/vmware/govmomi/lookup"
	lookupmethods "github.com/vmware/govmomi/lookup/methods"
	lookuptypes "github.com/vmware/govmomi/lookup/types"
	"github.com/vmware/govmomi/ssoadmin"
	ssomethods "github.com/vmware/govmomi/ssoadmin/methods"
	ssotypes "github.com/vmware/govmomi/ssoadmin/types"
	"github.com/vmware/govmomi/sts"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// directory is a session with the administration of the vCenter's own accounts (single
// sign-on). It has sessions of its own, opened with a token that the vCenter gives for the
// same account and password.
//
// Where its services are, the vCenter's lookup service says. Of that the paths alone are
// taken: the password goes to no other host than the one that was named.
type directory struct {
	c      *ssoadmin.Client
	domain string
}

// errNoDirectory says that a vCenter does not let its accounts be made here.
var errNoDirectory = errors.New("its single sign-on cannot be administered from here")

func (a *Admin) directory(ctx context.Context) (*directory, error) {
	if a.sso != nil {
		return a.sso, nil
	}
	d, err := a.openDirectory(ctx)
	if err != nil {
		return nil, a.directoryFault(err)
	}
	a.sso = d
	return d, nil
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

func (a *Admin) openDirectory(ctx context.Context) (*directory, error) {
	services := a.ssoPaths(ctx)
	if services.admin == "" {
		return nil, errNoDirectory
	}
	sc := serviceOf(a.c, services.admin, ssoadmin.Namespace)
	sc.Version = ssoadmin.Version
	c := &ssoadmin.Client{Client: sc, RoundTripper: sc, Domain: path.Base(services.admin), Limit: math.MaxInt32}
	content, err := ssomethods.SsoAdminServiceInstance(ctx, c, &ssotypes.SsoAdminServiceInstance{This: ssoadmin.ServiceInstance})
	if err != nil {
		return nil, err
	}
	c.ServiceContent = content.Returnval
	tokens := serviceOf(a.c, services.token, sts.Namespace)
	signer, err := (&sts.Client{Client: tokens, RoundTripper: tokens}).Issue(ctx, sts.TokenRequest{Userinfo: url.UserPassword(a.target.Username, string(a.target.Password))})
	if err != nil {
		return nil, err
	}
	if err := c.Login(c.WithHeader(ctx, soap.Header{Security: signer})); err != nil {
		return nil, err
	}
	return &directory{c: c, domain: c.Domain}, nil
}

func (d *directory) close() {
	ctx, cancel := context.WithTimeout(context.Background(), logoutTimeout)
	defer cancel()
	_ = d.c.Logout(ctx) // the vCenter ends idle sessions by itself
}

// ssoPaths are where the services of single sign-on are; empty where there are none.
type ssoServices struct{ admin, token string }

func (a *Admin) ssoPaths(ctx context.Context) ssoServices {
	sc := serviceOf(a.c, lookup.Path, lookup.Namespace)
	sc.Version = lookup.Version
	lu := &lookup.Client{Client: sc, RoundTripper: sc}
	content, err := lookupmethods.RetrieveServiceContent(ctx, lu, &lookuptypes.RetrieveServiceContent{This: lookup.ServiceInstance})
	if err != nil {
		return ssoServices{}
	}
	lu.ServiceContent = content.Returnval
	return ssoServices{
		admin: endpoint(ctx, lu, "vmomi", "com.vmware.cis.cs.identity.admin"),
		token: endpoint(ctx, lu, "wsTrust", "com.vmware.cis.cs.identity.sso"),
	}
}

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

// Account is one of the vCenter's own.
type Account struct {
	Exists      bool
	Description string
}

// Domain is that of the vCenter's own accounts.
func (a *Admin) Domain(ctx context.Context) (string, error) {
	d, err := a.directory(ctx)
	if err != nil {
		return "", err
	}
	return d.domain, nil
}

// Account finds an account by NAME@DOMAIN.
func (a *Admin) Account(ctx context.Context, name string) (Account, error) {
	d, err := a.directory(ctx)
	if err != nil {
		return Account{}, err
	}
	local, err := d.local(name)
	if err != nil {
		return Account{}, a.directoryFault(err)
	}
	found, err := d.c.FindPersonUser(ctx, local+"@"+d.domain)
	if err != nil {
		return Account{}, a.directoryFault(err)
	}
	if found == nil {
		return Account{}, nil
	}
	return Account{Exists: true, Description: found.Details.Description}, nil
}

// local is the name without the domain, which has to be that of the vCenter's own accounts.
func (d *directory) local(name string) (string, error) {
	local, domain, _ := strings.Cut(name, "@")
	if of, user, ok := strings.Cut(name, `\`); ok {
		local, domain = user, of
	}
	if !strings.EqualFold(domain, d.domain) {
		return "", fmt.Errorf("%w: accounts of %s are not its own, those of %s are", errNoDirectory, domain, d.domain)
	}
	return local, nil
}

// inDirectory does something with one of the vCenter's own accounts.
func (a *Admin) inDirectory(ctx context.Context, name string, do func(*ssoadmin.Client, string) error) error {
	d, err := a.directory(ctx)
	if err != nil {
		return err
	}
	local, err := d.local(name)
	if err == nil {
		err = do(d.c, local)
	}
	if err != nil {
		return a.directoryFault(err)
	}
	return nil
}

// MakeAccount makes an account.
func (a *Admin) MakeAccount(ctx context.Context, name, description string, password Password) error {
	return a.inDirectory(ctx, name, func(c *ssoadmin.Client, local string) error {
		return c.CreatePersonUser(ctx, local, ssotypes.AdminPersonDetails{Description: description, FirstName: "vSphere drivers", LastName: "Kubernetes"}, string(password))
	})
}

// SetPassword gives an account another password.
func (a *Admin) SetPassword(ctx context.Context, name string, password Password) error {
	return a.inDirectory(ctx, name, func(c *ssoadmin.Client, local string) error {
		return c.ResetPersonPassword(ctx, local, string(password))
	})
}

// RemoveAccount removes an account. One that is not there is no error.
func (a *Admin) RemoveAccount(ctx context.Context, name string) error {
	return a.inDirectory(ctx, name, func(c *ssoadmin.Client, local string) error {
		err := c.DeletePrincipal(ctx, local)
		if is[*types.NotFound](err) {
			return nil
		}
		return err
	})
}

// PasswordRules are what the vCenter demands of passwords.
type PasswordRules struct {
	Least, Most, Adjacent, Days       int // Days until one expires; 0 for never
	Upper, Lower, Alphabetic, Numeric int
	Special                           int
}

// PasswordRules reads them.
func (a *Admin) PasswordRules(ctx context.Context) (PasswordRules, error) {
	d, err := a.directory(ctx)
	if err != nil {
		return PasswordRules{}, err
	}
	p, err := d.c.GetLocalPasswordPolicy(ctx)
	if err != nil {
		return PasswordRules{}, a.directoryFault(err)
	}
	f := p.PasswordFormat
	return PasswordRules{
		Least: int(f.LengthRestriction.MinLength), Most: int(f.LengthRestriction.MaxLength), Adjacent: int(f.MaxIdenticalAdjacentCharacters), Days: int(p.PasswordLifetimeDays),
		Upper: int(f.AlphabeticRestriction.MinUppercaseCount), Lower: int(f.AlphabeticRestriction.MinLowercaseCount), Alphabetic: int(f.AlphabeticRestriction.MinAlphabeticCount),
		Numeric: int(f.MinNumericCount), Special: int(f.MinSpecialCharCount)}, nil
}
