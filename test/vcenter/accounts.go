package vcenter

import (
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	_ "github.com/vmware/govmomi/lookup/simulator" // where the other services are
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/ssoadmin/methods"
	ssosim "github.com/vmware/govmomi/ssoadmin/simulator"
	sso "github.com/vmware/govmomi/ssoadmin/types"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// Administrator may change everything, including the vCenter's own accounts.
var Administrator = Account{"administrator@vsphere.local", "Admin-Pass word#1"}

// passwordLength is the longest password, as in a new vCenter.
const passwordLength = 20

// directory simulates single sign-on by the API's documentation, unlike the simulator:
//
//   - The token service issues a token for an account and its password (WS-Trust Issue with a UsernameToken). The
//     simulator gives every client the token of one administrator.
//   - Only an administrator's token gives a session (SsoFaultNoPermission), and every call needs a session
//     (SsoFaultNotAuthenticated).
//   - A new account or a reset password logs in to the vCenter, a removed account does not
//     (CreateLocalPersonUser, ResetLocalPersonUserPassword, DeleteLocalPrincipal).
//   - A password policy refuses passwords that violate it (GetLocalPasswordPolicy).
type directory struct {
	*ssosim.PrincipalManagementService

	v *VCenter
}

// ssoPath is the path of the simulator's administration, tokenPath that of its tokens.
const (
	ssoPath   = "/sso-adminserver/sdk/vsphere.local"
	tokenPath = "/sts/STSService/vsphere.local"
)

// simulateDirectory replaces the simulator's services.
func (v *VCenter) simulateDirectory() {
	registry := v.model.Service.Context.For(ssoPath).Map
	ref := func(kind, value string) types.ManagedObjectReference {
		return types.ManagedObjectReference{Type: kind, Value: value}
	}
	people := registry.Get(ref("SsoAdminPrincipalManagementService", "principalManagementService"))
	registry.Put(&directory{people.(*ssosim.PrincipalManagementService), v}) //nolint:forcetypeassert // it is that
	registry.Put(&ssoSessions{ref("SsoSessionManager", "ssoSessionManager"), v})
	registry.Put(&passwordPolicy{ref("SsoAdminPasswordPolicyService", "passwordPolicyService")})
	v.model.Map().SessionManager().ValidLogin = v.valid // registering the simulator's set its own
}

// refused returns why an account cannot change, or get this password, if any; nil if it can.
func (d *directory) refused(password ...string) *soap.Fault {
	d.v.mu.Lock()
	defer d.v.mu.Unlock()
	switch {
	case d.v.ssoSessions == 0:
		return simulator.Fault("", new(types.NotAuthenticated))
	case slices.ContainsFunc(password, func(p string) bool { return !acceptablePassword(p) }):
		return simulator.Fault("the password is not of the policy", &types.InvalidArgument{InvalidProperty: "password"})
	}
	return nil
}

func local(name string) string { return strings.ToLower(name) + "@vsphere.local" }

func (d *directory) CreateLocalPersonUser(ctx *simulator.Context, req *sso.CreateLocalPersonUser) soap.HasFault {
	if f := d.refused(req.Password); f != nil {
		return &methods.CreateLocalPersonUserBody{Fault_: f}
	}
	body := d.PrincipalManagementService.CreateLocalPersonUser(ctx, req)
	if body.Fault() == nil {
		d.v.mu.Lock()
		defer d.v.mu.Unlock()
		d.v.passwords[local(req.UserName)], d.v.plain[local(req.UserName)] = req.Password, true
	}
	return body
}

func (d *directory) ResetLocalPersonUserPassword(
	ctx *simulator.Context, req *sso.ResetLocalPersonUserPassword,
) soap.HasFault {
	if f := d.refused(req.NewPassword); f != nil {
		return &methods.ResetLocalPersonUserPasswordBody{Fault_: f}
	}
	body := d.PrincipalManagementService.ResetLocalPersonUserPassword(ctx, req)
	if body.Fault() == nil {
		d.v.SetPassword(local(req.UserName), req.NewPassword)
	}
	return body
}

func (d *directory) DeleteLocalPrincipal(ctx *simulator.Context, req *sso.DeleteLocalPrincipal) soap.HasFault {
	if f := d.refused(); f != nil {
		return &methods.DeleteLocalPrincipalBody{Fault_: f}
	}
	body := d.PrincipalManagementService.DeleteLocalPrincipal(ctx, req)
	if body.Fault() == nil {
		d.v.mu.Lock()
		defer d.v.mu.Unlock()
		delete(d.v.passwords, local(req.PrincipalName))
		delete(d.v.plain, local(req.PrincipalName))
	}
	return body
}

// ssoSessions manages the sessions of the administration.
type ssoSessions struct {
	types.ManagedObjectReference

	v *VCenter
}

// Login opens a session with a token.
func (s *ssoSessions) Login(ctx *simulator.Context, _ *sso.Login) soap.HasFault {
	var token struct {
		Account string `xml:"Assertion>Subject>NameID"`
	}
	if e, ok := ctx.Header.Security.(*simulator.Element); ok {
		_ = e.Decode(&token) // a missing token has no account
	}
	if !strings.EqualFold(token.Account, Administrator.Username) {
		return &methods.LoginBody{Fault_: simulator.Fault("", new(types.NoPermission))}
	}
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	s.v.ssoSessions++
	return &methods.LoginBody{Res: new(sso.LoginResponse)}
}

func (s *ssoSessions) Logout(*simulator.Context, *sso.Logout) soap.HasFault {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	s.v.ssoSessions--
	return &methods.LogoutBody{Res: new(sso.LogoutResponse)}
}

type passwordPolicy struct{ types.ManagedObjectReference }

// GetLocalPasswordPolicy returns the policy of a new vCenter.
func (*passwordPolicy) GetLocalPasswordPolicy(*simulator.Context, *sso.GetLocalPasswordPolicy) soap.HasFault {
	return &methods.GetLocalPasswordPolicyBody{Res: &sso.GetLocalPasswordPolicyResponse{Returnval: sso.AdminPasswordPolicy{
		ProhibitedPreviousPasswordsCount: 5, PasswordLifetimeDays: 90,
		PasswordFormat: sso.AdminPasswordFormat{
			LengthRestriction:     sso.AdminPasswordFormatLengthRestriction{MinLength: 8, MaxLength: passwordLength},
			AlphabeticRestriction: sso.AdminPasswordFormatAlphabeticRestriction{MinAlphabeticCount: 2, MinUppercaseCount: 1, MinLowercaseCount: 1},
			MinNumericCount:       1, MinSpecialCharCount: 1, MaxIdenticalAdjacentCharacters: 3},
	}}}
}

func acceptablePassword(p string) bool {
	has := func(f func(rune) bool) bool { return strings.ContainsFunc(p, f) }
	special := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	return len(p) >= 8 && len(p) <= passwordLength && has(unicode.IsUpper) && has(unicode.IsLower) && has(unicode.IsDigit) && has(special)
}

// tokens answers Issue requests.
func (v *VCenter) tokens(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Username string `xml:"Header>Security>UsernameToken>Username"`
		Password string `xml:"Header>Security>UsernameToken>Password"`
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err == nil {
		err = xml.Unmarshal(body, &req)
	}
	if err != nil || !v.valid(&types.Login{UserName: req.Username, Password: req.Password}) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `<S:Envelope xmlns:S="http://schemas.xmlsoap.org/soap/envelope/"><S:Body><S:Fault xmlns:ns4="http://www.w3.org/2003/05/soap-envelope">`+
			`<faultcode xmlns:ns0="http://docs.oasis-open.org/ws-sx/ws-trust/200512/">ns0:FailedAuthentication</faultcode><faultstring>Invalid credentials</faultstring></S:Fault></S:Body></S:Envelope>`)
		return
	}
	_, _ = fmt.Fprintf(w, tokenAnswer, url.QueryEscape(req.Username), xmlText(req.Username))
}

func xmlText(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}

const tokenAnswer = `<S:Envelope xmlns:S="http://schemas.xmlsoap.org/soap/envelope/"><S:Body>
<wst:RequestSecurityTokenResponseCollection xmlns:wst="http://docs.oasis-open.org/ws-sx/ws-trust/200512"><wst:RequestSecurityTokenResponse>
<wst:RequestedSecurityToken><saml2:Assertion xmlns:saml2="urn:oasis:names:tc:SAML:2.0:assertion" ID="_%s" Version="2.0"><saml2:Subject><saml2:NameID>%s</saml2:NameID></saml2:Subject></saml2:Assertion></wst:RequestedSecurityToken>
</wst:RequestSecurityTokenResponse></wst:RequestSecurityTokenResponseCollection></S:Body></S:Envelope>`
