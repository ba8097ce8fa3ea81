package vcenter_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	ssosim "github.com/vmware/govmomi/ssoadmin/simulator"
	sso "github.com/vmware/govmomi/ssoadmin/types"
	_ "github.com/vmware/govmomi/vapi/esx/settings/simulator" // clusters' images
	"github.com/vmware/govmomi/vim25/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

func as(v *vcsim.VCenter, a vcsim.Account) vcenter.Target {
	tg := target(v)
	tg.Username, tg.Password = a.Username, vcenter.Password(a.Password)
	return tg
}

func TestAnAccountIsMadeAndHasWhatItIsGiven(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	ctx := t.Context()
	a := must.Have(vcenter.Open(ctx, as(v, vcsim.Administrator)))(t)
	defer a.Close()
	const name = "drivers@vsphere.local"
	mine := vcsim.Account{Username: name, Password: "Good-Pass word#1"}

	domain := must.Have(a.Domain(ctx))(t)
	require.Equal(t, "vsphere.local", domain)
	found := must.Have(a.Account(ctx, name))(t)
	require.False(t, found.Exists)
	days := must.Have(a.PasswordDays(ctx))(t)
	require.Equal(t, 90, days)
	require.NoError(t, a.MakeAccount(ctx, name, "made for a test", vcenter.Password(mine.Password)))
	found = must.Have(a.Account(ctx, name))(t)
	require.Equal(t, vcenter.Account{Exists: true, Description: "made for a test"}, found)
	refused(t, must.Err(vcenter.Check(ctx, as(v, mine))), fault.Forbidden, "has no role in this vCenter")

	for range 2 { // by this program, and by one at a linked vCenter
		require.NoError(t, a.MakeRole(ctx, "vdo-csi-search", []string{"Cns.Searchable"}))
	}
	category := vcenter.TagStep{Do: vcenter.MakeCategory, Category: "zone", Types: []string{"Folder"}}
	require.NoError(t, a.ChangeTags(ctx, category))
	tagged := vcenter.Inspect(ctx, target(v), vcenter.Ask{Categories: []string{"zone"}})
	require.Equal(t, []string{"urn:vim25:Folder"}, tagged.Categories["zone"].Types)
	roles := must.Have(a.Roles(ctx))(t)
	require.Contains(t, roles["vdo-csi-search"].Privileges, "Cns.Searchable")
	root := "Folder-group-d1"
	require.Equal(t, "/", a.PathOf(ctx, root))
	require.Equal(t, "Folder-gone", a.PathOf(ctx, "Folder-gone"))
	on := &types.ManagedObjectReference{Type: "Folder", Value: "group-d1"}
	v.Break("SetEntityPermissions", &types.NoPermission{PrivilegeId: "X.Y", Object: on})
	err := a.SetPermission(ctx, root, name, roles["vdo-csi-search"], true)
	refused(t, err, fault.Forbidden, "set a permission on / of", "lacks the privilege X.Y on / (")
	v.Mend()
	require.NoError(t, a.SetPermission(ctx, root, name, roles["vdo-csi-search"], true))
	has := must.Have(a.Permissions(ctx, name))(t)
	require.Equal(t, map[string]privileges.Permission{root: {Role: "vdo-csi-search", Propagate: true}}, has)
	must.Have(vcenter.Check(ctx, as(v, mine)))(t)

	used := must.Have(a.RemoveRole(ctx, roles["vdo-csi-search"]))(t)
	require.True(t, used, "a role that is used stays")
	for range 2 { // what is done is done
		require.NoError(t, a.RemovePermission(ctx, root, name))
		require.NoError(t, a.RemoveAccount(ctx, name))
	}
	used = must.Have(a.RemoveRole(ctx, roles["vdo-csi-search"]))(t)
	require.False(t, used)
	refused(t, must.Err(vcenter.Check(ctx, as(v, mine))), fault.Unauthorized, "refuses the user name or password")
}

func TestWhoMayNotChangeAVCenterIsToldSo(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	ctx := t.Context()
	limited := vcsim.Account{Username: "limited@vsphere.local", Password: "Limited-Pass#1"}
	v.SetPassword(limited.Username, limited.Password)
	require.NoError(t, v.Grant(ctx, limited.Username, "seeing", "/", true))
	a := must.Have(vcenter.Open(ctx, as(v, limited)))(t)
	defer a.Close()
	err := a.MakeRole(ctx, "x", nil)
	refused(t, err, fault.Forbidden, "Authorization.ModifyRoles")
	require.Contains(t, fault.HintOf(err), "--username administrator@vsphere.local")
	err = a.MakeAccount(ctx, "x@vsphere.local", "", "Good-Pass word#1")
	refused(t, err, fault.Forbidden, "no administrator of the single sign-on")
	require.Contains(t, fault.HintOf(err), "--account-password-file")

	b := must.Have(vcenter.Open(ctx, as(v, vcsim.Administrator)))(t)
	defer b.Close()
	refused(t, must.Err(b.Account(ctx, "x@corp.example")), fault.Refused, "accounts of corp.example are not its own")
	err = b.MakeAccount(ctx, "x@vsphere.local", "", vcenter.Password(strings.Repeat("aA1#", 9)))
	refused(t, err, fault.Refused, "not of the policy")
	_, err = vcenter.Open(ctx, as(v, vcsim.Account{Username: vcsim.Administrator.Username, Password: "wrong"}))
	refused(t, err, fault.Unauthorized, "refuses the user name or password")
}

// assertion is a token of an account, as single sign-on writes it.
func assertion(account string) string {
	return `<saml2:Assertion xmlns:saml2="urn:oasis:names:tc:SAML:2.0:assertion" ID="_1" Version="2.0"><saml2:Subject><saml2:NameID>` +
		account + `</saml2:NameID></saml2:Subject></saml2:Assertion>`
}

// by is an account without a password, with the files of a proof.
func by(t *testing.T, v *vcsim.VCenter, p vcenter.Proof) vcenter.Target {
	require.True(t, p.Given())
	tg := as(v, vcsim.Account{Username: vcsim.Administrator.Username})
	require.NoError(t, p.Apply(&tg))
	return tg
}

func written(t *testing.T, data string) string {
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte(data), 0o600))
	return name
}

// Accounts of federated providers log in with a token, to all services, and send no password.
func TestATokenTakesThePlaceOfThePassword(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	tg := by(t, v, vcenter.Proof{Token: written(t, assertion(vcsim.Administrator.Username)+"\n")})
	require.NotContains(t, fmt.Sprintf("%+v", tg), "NameID")
	ask := vcenter.Ask{Categories: []string{"zone"}, Features: everything, Access: true}
	got := vcenter.Inspect(t.Context(), tg, ask)
	require.NoError(t, got.Err)
	require.Empty(t, got.Failed)
	require.Equal(t, `VSPHERE.LOCAL\administrator`, got.Access.Principal)
	a := must.Have(vcenter.Open(t.Context(), tg))(t)
	must.Have(a.Account(t.Context(), "x@vsphere.local"))(t)
	a.Close()
	require.Zero(t, v.Logins(vcsim.Administrator.Username))
	noSession(t, v)

	tg.Token = "<Assertion/>"
	_, err := vcenter.Check(t.Context(), tg)
	refused(t, err, fault.Unauthorized, "refuses the token", "govc session.login -issue")
	noSession(t, v)
	var p vcenter.Proof
	p.Token = written(t, "not a token")
	refused(t, p.Apply(&tg), fault.InvalidInput, "not a SAML token", "--token-file")
	for _, p := range []vcenter.Proof{{Token: "none"}, {Certificate: p.Token, Key: "none"}} {
		refused(t, p.Apply(&tg), fault.NotFound, "none", "check the path")
	}
	p = vcenter.Proof{Key: p.Token}
	refused(t, p.Apply(&tg), fault.InvalidInput, "one needs the other", "give both")
}

// Single sign-on issues a token for a certificate and a signature by its key, as
// govmomi v0.56.0, sts/simulator/simulator.go, handler.ServeHTTP, does for any proof.
func TestACertificateIsExchangedForAToken(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	next := passOn(v)
	tg := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/sts/") {
			next.ServeHTTP(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), "BinarySecurityToken") || !strings.Contains(string(body), "SignatureValue") {
			t.Errorf("no certificate and signature in %s", body)
		}
		_, _ = io.WriteString(w, `<S:Envelope xmlns:S="http://schemas.xmlsoap.org/soap/envelope/"><S:Body>`+
			`<wst:RequestSecurityTokenResponseCollection xmlns:wst="http://docs.oasis-open.org/ws-sx/ws-trust/200512"><wst:RequestSecurityTokenResponse>`+
			`<wst:RequestedSecurityToken>`+assertion(vcsim.Administrator.Username)+`</wst:RequestedSecurityToken>`+
			`</wst:RequestSecurityTokenResponse></wst:RequestSecurityTokenResponseCollection></S:Body></S:Envelope>`)
	})
	key := must.Have(rsa.GenerateKey(rand.Reader, 2048))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert := must.Have(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	encode := func(kind string, data []byte) string {
		return written(t, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data})))
	}
	pkcs1 := x509.MarshalPKCS1PrivateKey(key)
	p := vcenter.Proof{Certificate: encode("CERTIFICATE", cert), Key: encode("RSA PRIVATE KEY", pkcs1)}
	require.NoError(t, p.Apply(&tg))
	tg.Username, tg.Password = "", ""
	r := must.Have(vcenter.Check(t.Context(), tg))(t)
	require.Equal(t, vcsim.Administrator.Username, r.User)
	noSession(t, v)

	other := must.Have(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der := must.Have(x509.MarshalPKCS8PrivateKey(other))(t)
	p.Key = encode("PRIVATE KEY", der)
	refused(t, p.Apply(&tg), fault.InvalidInput, "--login-key")
}

// Sessions are saved as govc saves them, readable by no one else, and end no sooner than they expire.
func TestSavedSessionsAreUsedAgain(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	dir := t.TempDir()
	first := as(v, vcsim.Administrator)
	first.Sessions = dir
	ask := vcenter.Ask{Categories: []string{"zone"}, Features: everything}
	var got preflight.VCenter
	for range 2 {
		got = vcenter.Inspect(t.Context(), first, ask)
		require.NoError(t, got.Err)
		require.Empty(t, got.Failed)
	}
	require.Equal(t, 2, v.Logins(vcsim.Administrator.Username), "one of the API, one of the tags' API")
	files := must.Have(filepath.Glob(filepath.Join(dir, "*", "*")))(t)
	require.Len(t, files, 2)
	for i, name := range files { // it is of no use
		require.NoError(t, os.WriteFile(name, []byte([]string{"{", "{}"}[i]), 0o600))
	}
	require.NoError(t, vcenter.Inspect(t.Context(), first, ask).Err)
	for _, name := range files {
		info := must.Have(os.Stat(name))(t)
		require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), name)
		data, _ := os.ReadFile(name)
		require.NotContains(t, string(data), vcsim.Administrator.Password)
	}
	require.Equal(t, 4, v.Logins(vcsim.Administrator.Username))

	// The password beside a saved session is tried at other services, when it is its turn.
	wrong, turns := first, 0
	wrong.Password = "wrong-canary"
	wrong.Turn = func(context.Context, func() error) error { turns++; return context.Canceled }
	a := must.Have(vcenter.Open(t.Context(), wrong))(t)
	defer a.Close()
	require.Error(t, must.Err(a.Account(t.Context(), vcsim.Administrator.Username)))
	require.NoError(t, os.Rename(filepath.Join(dir, "rest_sessions"), filepath.Join(dir, "aside")))
	require.Error(t, a.ChangeTags(t.Context(), vcenter.TagStep{Do: vcenter.MakeTag}))
	require.Equal(t, 2, turns)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "rest_sessions")))
	require.NoError(t, os.Rename(filepath.Join(dir, "aside"), filepath.Join(dir, "rest_sessions")))

	got = vcenter.Inspect(t.Context(), by(t, v, vcenter.Proof{Sessions: dir}), ask)
	require.NoError(t, got.Err)
	require.Empty(t, got.Failed)
	require.Equal(t, 4, v.Logins(vcsim.Administrator.Username))

	_, err := vcenter.Check(t.Context(), by(t, v, vcenter.Proof{Sessions: t.TempDir()}))
	refused(t, err, fault.Unauthorized, "no session of administrator@vsphere.local", "govc session.login")
	require.Equal(t, 4, v.Logins(vcsim.Administrator.Username), "nothing is tried without a password")
}

// A vCenter names accounts of a directory by the short name of their domain, whatever they log in as:
// the identity sources of govmomi v0.56.0, ssoadmin/simulator/simulator.go, have EXAMPLEX for example.com.
func TestAnAccountIsKnownByItsAlias(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	tg := rewritten(t, v, strings.NewReplacer(`EXAMPLE.COM\k8s`, `EXAMPLEX\k8s`).Replace)
	tg.Username, tg.Password = vcsim.Administrator.Username, vcenter.Password(vcsim.Administrator.Password)
	a := must.Have(vcenter.Open(t.Context(), as(v, vcsim.Administrator)))(t)
	defer a.Close()
	roles := must.Have(a.Roles(t.Context()))(t)
	const root = "Folder-group-d1"
	require.NoError(t, a.SetPermission(t.Context(), root, "k8s@example.com", roles["ReadOnly"], false))

	renamed := must.Have(vcenter.Open(t.Context(), tg))(t)
	defer renamed.Close()
	want := privileges.Permission{Role: "ReadOnly"}
	for _, name := range []string{"k8s@example.com", `examplex\k8s`, `EXAMPLE.COM\K8s`} {
		has := must.Have(renamed.Permissions(t.Context(), name))(t)
		require.Equal(t, map[string]privileges.Permission{root: want}, has, name)
	}
	has := must.Have(renamed.Permissions(t.Context(), "k8s@other.example"))(t)
	require.Empty(t, has)
	renamed.Learn("k8s.drivers@mail.example", `EXAMPLEX\k8s`) // a login was answered so
	has = must.Have(renamed.Permissions(t.Context(), "k8s.drivers@mail.example"))(t)
	require.Equal(t, map[string]privileges.Permission{root: want}, has)
	ask := vcenter.Ask{Features: everything, Access: true, Principal: "k8s@example.com"}
	access := vcenter.Inspect(t.Context(), tg, ask).Access
	require.Equal(t, map[string]privileges.Permission{"/": want}, access.Existing.Permissions)

	report := must.Have(vcenter.Check(t.Context(), as(v, vcsim.Administrator)))(t)
	linked := must.Have(a.Linked(t.Context()))(t)
	require.Equal(t, report.InstanceUUID, linked)
}

// What vSphere 9 removes: KB 314324 and KB 379388; the API of govmomi v0.56.0,
// ssoadmin/client.go, IdentitySources, and vapi/esx/settings/clusters/clusters.go, GetSoftwareManagement.
func TestAnInspectionFindsWhatVSphere9Removes(t *testing.T) {
	ssosim.IdentitySources.NativeAD = &sso.IdentitySource{Domains: []sso.Domain{{Name: "corp.example", Alias: "CORP"}}}
	defer func() { ssosim.IdentitySources.NativeAD = nil }()
	v := vcsim.Start(t, vcsim.Options{})
	ask := vcenter.Ask{Features: everything, Upgrade: true}
	got := vcenter.Inspect(t.Context(), as(v, vcsim.Administrator), ask)
	require.NoError(t, got.Failed[preflight.Upgrade])
	require.Equal(t, []string{"corp.example"}, got.Removed.WindowsDomains)
	require.Contains(t, got.Removed.Baselines, "/site/prod/east/host/DC0_C0")

	got = vcenter.Inspect(t.Context(), target(v), ask)
	require.NoError(t, got.Failed[preflight.Upgrade], "who may not read it is told nothing")
	require.Nil(t, got.Removed)
	v.SetVersion("9.0.0")
	require.Nil(t, vcenter.Inspect(t.Context(), as(v, vcsim.Administrator), ask).Removed)
	noSession(t, v)
}

func TestASessionNamesItsProgram(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	for agent, want := range map[string]string{"": "vdo-operator", "vdoctl": "vdoctl"} {
		tg := as(v, vcsim.Administrator)
		tg.Agent = agent
		a := must.Have(vcenter.Open(t.Context(), tg))(t)
		list, err := a.Sessions(t.Context(), vcsim.Administrator.Username)
		a.Close()
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, want, list[0].Agent)
	}
}
