package vcenter

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/session/cache"
	"github.com/vmware/govmomi/ssoadmin"
	"github.com/vmware/govmomi/sts"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
)

// Admin is a session at a vCenter: its roles, permissions, accounts, tags and VMs. [Open] opens it; the caller closes
// it.
type Admin struct {
	target Target
	limit  time.Duration // of all steps together
	c      *vim25.Client // nil before it is connected
	report Report
	open   bool // a session may be open and needs a logout
	// accepted is set if the vCenter accepted the account's password, token or certificate.
	accepted bool
	User     string // the account as the vCenter names it

	sso  *ssoadmin.Client
	rest *rest.Client // nil before its first use
	// answers are the vCenter's names of logins by the given name; aliases are the domains by alias. Both are nil
	// before they are read.
	answers, aliases map[string]string
}

// ID returns the vCenter's instance UUID.
func (a *Admin) ID() string { return a.report.InstanceUUID }

// Open logs in. Before it sends the password, it checks the certificate and that the server is a vCenter.
func Open(ctx context.Context, t Target) (*Admin, error) {
	a := t.session(defaultTimeout)
	if err := a.enter(ctx); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// session returns a session that is not open yet. timeout is the default for all its steps together.
func (t Target) session(timeout time.Duration) *Admin {
	if t.Timeout > 0 {
		timeout = t.Timeout
	}
	return &Admin{target: t, limit: timeout}
}

func (a *Admin) spend(ctx context.Context, step func(context.Context) error) error {
	begun := time.Now()
	defer func() { a.report.Took += time.Since(begun) }()
	ctx, cancel := context.WithTimeout(ctx, a.limit-a.report.Took)
	defer cancel()
	return step(ctx)
}

// Reach checks the certificate and that the server is a vCenter, without a login.
func Reach(ctx context.Context, t Target) error {
	a := t.session(defaultTimeout)
	defer a.Close()
	return a.reach(ctx)
}

func (a *Admin) enter(ctx context.Context) error {
	t := a.target
	if err := t.valid(); err != nil {
		return err
	}
	if err := a.reach(ctx); err != nil {
		return err
	}
	if a.resume(ctx) {
		return nil
	}
	login := a.login
	if t.passwordless() {
		login = a.loginByToken
	} else if t.Password == "" {
		return fault.Errorf(fault.Unauthorized, "log in to", t.Address(), "log in: govc session.login, or give a password or token too",
			"no session of %s that is still open is saved in %s", t.Username, t.Sessions)
	}
	if err := a.turn(ctx, func() error { return a.spend(ctx, login) }); err != nil {
		return t.classify("log in to", err, nil)
	}
	a.accepted = true
	a.Learn(t.Username, a.User)
	a.open = t.Sessions == ""
	return a.save(a.c)
}

func (a *Admin) reach(ctx context.Context) error {
	t := a.target
	if err := a.spend(ctx, a.connect); err != nil {
		return t.classify("connect to", err, nil)
	}
	about := a.c.ServiceContent.About
	a.report.Version, a.report.APIVersion = about.Version, about.ApiVersion
	a.report.Build, a.report.InstanceUUID = about.Build, about.InstanceUuid
	if err := t.acceptable(about); err != nil {
		return t.classify("use", err, nil)
	}
	return nil
}

// turn waits for the turn of a password. An accepted password or a token locks no account, so neither waits. The
// password beside a saved session is still untested.
func (a *Admin) turn(ctx context.Context, login func() error) error {
	if a.accepted || a.target.passwordless() || a.target.Turn == nil {
		return login()
	}
	return a.target.Turn(ctx, login)
}

// login sends the password. A session may be open if the answer was lost. The limit is always defaultTimeout, since
// others wait for their turn.
func (a *Admin) login(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	res, err := methods.Login(ctx, a.c, &types.Login{
		This: *a.c.ServiceContent.SessionManager, Locale: "en_US",
		UserName: a.target.Username, Password: string(a.target.Password)})
	if soap.IsSoapFault(err) {
		return a.refusal(ctx, err)
	}
	a.open = true
	if err == nil {
		a.User = res.Returnval.UserName
	}
	return err
}

// loginByToken logs in with a token of single sign-on: govmomi v0.56.0, cli/session/login.go, loginByToken.
func (a *Admin) loginByToken(ctx context.Context) error {
	signer, err := a.signer(ctx)
	if err == nil {
		ctx, login := a.c.WithHeader(ctx, soap.Header{Security: signer}), types.LoginByToken{Locale: "en_US"}
		login.This = *a.c.ServiceContent.SessionManager
		var res *types.LoginByTokenResponse
		res, err = methods.LoginByToken(ctx, a.c, &login)
		if err == nil {
			a.open, a.User = true, res.Returnval.UserName
			return nil
		}
	}
	if soap.IsSoapFault(err) {
		return &fault.Error{Reason: fault.Unauthorized, Op: "log in to", Subject: a.target.Address(), Err: errors.New("the vCenter refuses the token or certificate: " + err.Error()),
			Hint: "issue another token, they last minutes: govc session.login -issue; with a certificate, give its key too"}
	}
	return err
}

// signer returns a token of single sign-on: the given one, or a new one for the certificate or the password.
func (a *Admin) signer(ctx context.Context) (*sts.Signer, error) {
	t := a.target
	if t.Token != "" {
		return &sts.Signer{Certificate: t.Certificate, Token: string(t.Token)}, nil
	}
	services, err := a.services(ctx)
	if err != nil {
		return nil, err
	}
	request := sts.TokenRequest{Certificate: t.Certificate, Delegatable: t.Certificate != nil}
	if t.Certificate == nil {
		request.Userinfo = url.UserPassword(t.Username, string(t.Password))
	}
	tokens := a.serviceOf(services.token, sts.Namespace)
	var out *sts.Signer
	err = a.turn(ctx, func() (err error) {
		out, err = (&sts.Client{Client: tokens, RoundTripper: tokens}).Issue(ctx, request)
		return err
	})
	return out, err
}

// Close logs out, unless the session is saved.
func (a *Admin) Close() {
	if a.c == nil {
		return
	}
	// The vCenter ends idle sessions by itself.
	ctx, cancel := context.WithTimeout(context.Background(), logoutTimeout)
	defer cancel()
	if a.sso != nil {
		_ = a.sso.Logout(ctx)
	}
	if a.rest != nil && a.target.Sessions == "" {
		_ = a.rest.Logout(ctx)
	}
	if a.open {
		_, _ = methods.Logout(ctx, a.c, &types.Logout{This: *a.c.ServiceContent.SessionManager})
	}
	a.c.CloseIdleConnections()
}

// saved returns govc's location of the account's sessions: govmomi v0.56.0, session/cache/session.go.
func (a *Admin) saved() *cache.Session {
	t := a.target
	u := &url.URL{Scheme: "https", Host: t.Server(), Path: vim25.Path}
	if t.Username != "" {
		u.User = url.User(t.Username)
	}
	return &cache.Session{URL: u, Insecure: t.Trust.Insecure, Passthrough: t.Sessions == "",
		DirSOAP: filepath.Join(t.Sessions, "sessions"), DirREST: filepath.Join(t.Sessions, "rest_sessions")}
}

// resume uses an open saved session instead of a login.
func (a *Admin) resume(ctx context.Context) bool {
	c := new(vim25.Client)
	err := a.spend(ctx, func(ctx context.Context) error {
		ok, err := a.saved().Load(ctx, c, func(sc *soap.Client) error {
			sc.Version = a.c.Version
			return a.bind(sc)
		})
		if err != nil || !ok {
			return cmp.Or(err, http.ErrNoCookie)
		}
		s, err := session.NewManager(c).UserSession(ctx)
		if err == nil {
			a.User = s.UserName
		}
		return err
	})
	if err == nil {
		a.c.CloseIdleConnections()
		a.c = c
	}
	return err == nil
}

// save keeps a session open, in a file that others cannot read.
func (a *Admin) save(c cache.Client) error {
	if err := a.saved().Save(c); err != nil {
		return &fault.Error{Reason: fault.Storage, Op: "save the session in", Subject: a.target.Sessions, Err: err}
	}
	return nil
}

// automation returns the session of the REST API, which has its own login. It is opened once.
func (a *Admin) automation(ctx context.Context) (*rest.Client, error) {
	if a.rest != nil {
		return a.rest, nil
	}
	rc := new(rest.Client)
	if saved, _ := a.saved().Load(ctx, rc, a.bind); !saved {
		rc = rest.NewClient(a.c)
		_ = a.bind(rc.Client)
		if err := a.loginREST(ctx, rc); err != nil {
			return nil, err
		}
		if err := a.save(rc); err != nil {
			return nil, err
		}
	}
	a.rest = rc
	return rc, nil
}

func (a *Admin) loginREST(ctx context.Context, rc *rest.Client) error {
	t := a.target
	switch {
	case t.passwordless():
		signer, err := a.signer(ctx)
		if err != nil {
			return err
		}
		return rc.LoginByToken(rc.WithSigner(ctx, signer))
	case t.Password == "":
		return errors.New("no session of its REST API is saved: govc session.login -r")
	}
	return a.turn(ctx, func() error { return rc.Login(ctx, url.UserPassword(t.Username, string(t.Password))) })
}

// serviceOf returns a client of another service of the vCenter: same session and rule for certificates.
func (a *Admin) serviceOf(path, namespace string) *soap.Client {
	sc := a.c.NewServiceClient(path, namespace)
	_ = a.bind(sc)
	sc.Cookie = a.c.SessionCookie
	return sc
}

// bind never fails; the library's signature has an error.
func (a *Admin) bind(sc *soap.Client) error {
	transport := sc.DefaultTransport()
	if own := a.c.DefaultTransport(); own != transport { // of a saved session
		transport.TLSClientConfig, transport.DialTLSContext = own.TLSClientConfig, nil
	}
	sc.Transport = a.target.wrapped(transport)
	sc.CheckRedirect, sc.UserAgent = a.c.CheckRedirect, a.c.UserAgent
	return nil
}

// Proof names files that replace an account's password: accounts of federated identity providers have none. They are
// the files of govc session.login.
type Proof struct{ Token, Certificate, Key, Sessions string }

// Bind adds the flags.
func (p *Proof) Bind(fl *pflag.FlagSet) {
	fl.StringVar(&p.Token, "token-file", "", "`FILE` with a SAML token to log in with, as from govc session.login -issue")
	fl.StringVar(&p.Certificate, "login-certificate", "", "`FILE` with the certificate of the account, or of the token")
	fl.StringVar(&p.Key, "login-key", "", "`FILE` with the key of --login-certificate")
	fl.StringVar(&p.Sessions, "session-dir", "", "`DIRECTORY` with saved sessions, such as ~/.govmomi of govc; new ones are saved there")
}

// Given reports whether a flag is set.
func (p *Proof) Given() bool { return *p != Proof{} }

// Apply reads the files.
func (p *Proof) Apply(t *Target) error {
	unread := func(flag, name string, err error) error {
		if path, ok := errors.AsType[*fs.PathError](err); ok {
			return userfile.Unreadable(flag, path.Path, err)
		}
		return fault.Errorf(fault.InvalidInput, "read "+flag, name, "correct "+flag, "%w", err)
	}
	t.Sessions = p.Sessions
	if p.Token != "" {
		data, err := os.ReadFile(p.Token)
		if data = bytes.TrimSpace(data); err == nil && !bytes.HasPrefix(data, []byte("<")) {
			err = errors.New("it is not a SAML token")
		}
		if err != nil {
			return unread("--token-file", p.Token, err)
		}
		t.Token = Password(data)
	}
	switch certificate, key := p.Certificate != "", p.Key != ""; {
	case certificate != key:
		return fault.Errorf(fault.InvalidInput, "read --login-certificate and --login-key", "", "give both", "one needs the other")
	case !key:
		return nil
	}
	pair, err := tls.LoadX509KeyPair(p.Certificate, p.Key)
	if err != nil {
		return unread("--login-certificate and --login-key", p.Certificate, err)
	}
	t.Certificate = &pair
	return nil
}
