package vcenter_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// target is the vCenter as the administrator, trusted by its authority.
func target(v *vcsim.VCenter) vcenter.Target {
	return vcenter.Target{
		Host: v.Host, Port: v.Port,
		Username: vcsim.Admin.Username, Password: vcenter.Password(vcsim.Admin.Password),
		Trust: vcenter.Trust{CA: v.CA}}
}

// noSession fails where a session was left open.
func noSession(t *testing.T, v *vcsim.VCenter) {
	n := must.Have(v.SessionCount(context.Background()))(t)
	require.Zero(t, n, "sessions left open")
}

// refused requires a fault of a reason whose text has all the fragments and no
// password.
func refused(t *testing.T, err error, reason fault.Reason, fragments ...string) {
	text := fault.Text(err)
	require.Equal(t, reason, fault.ReasonOf(err), "%s", text)
	require.NotEmpty(t, fault.HintOf(err), "%s", text)
	for _, f := range fragments {
		require.Contains(t, text, f)
	}
	require.NotContains(t, text, vcsim.Admin.Password)
}

func TestAHealthyVCenterIsDescribed(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{Version: "7.0.3"})
	tg := target(v)
	tg.Datacenters = []string{"site/prod/east", "/site/west", "lab"}
	const wait = 100 * time.Millisecond
	tg.Turn = func(_ context.Context, login func() error) error {
		time.Sleep(wait)
		return login()
	}
	began := time.Now()
	r := must.Have(vcenter.Check(t.Context(), tg))(t)
	require.Positive(t, r.Took)
	require.LessOrEqual(t, r.Took, time.Since(began)-wait, "who waits for another vCenter with the same account is not slow")
	require.Equal(t, "7.0.3", r.Version)
	require.Equal(t, "7.0.3.0", r.APIVersion)
	require.NotEmpty(t, r.Build)
	require.NotEmpty(t, r.InstanceUUID)
	require.Equal(t, v.SHA1, r.Thumbprint)
	require.Equal(t, vcsim.Admin.Username, r.User)
	require.Equal(t, []string{"/lab", "/site/prod/east", "/site/west"}, r.Datacenters)
	require.Empty(t, r.Missing)
	require.Equal(t, 1, v.Logins(vcsim.Admin.Username))
	noSession(t, v)

	tg.InstanceUUIDs = []string{"another", ""}
	again, err := vcenter.Check(t.Context(), tg)
	refused(t, err, fault.Conflict, "another vCenter answers: expected instance UUID another, got "+r.InstanceUUID, "acceptInstanceUUID")
	require.Equal(t, r.InstanceUUID, again.InstanceUUID)
	require.Equal(t, fault.Conflict, fault.ReasonOf(vcenter.Inspect(t.Context(), tg, vcenter.Ask{}).Err))
	require.Equal(t, 1, v.Logins(vcsim.Admin.Username), "no password for another vCenter")
	tg.InstanceUUIDs = []string{"another", r.InstanceUUID}
	must.Have(vcenter.Check(t.Context(), tg))(t)
}

func TestTheCertificateRules(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	other := vcsim.Start(t, vcsim.Options{})
	named := vcsim.Start(t, vcsim.Options{Names: []string{"vc.site.example", "10.9.8.7"}})
	expired := vcsim.Start(t, vcsim.Options{Expired: true})
	nameless := vcsim.Start(t, vcsim.Options{Names: []string{}})

	for name, c := range map[string]struct {
		v      *vcsim.VCenter
		trust  vcenter.Trust
		reason fault.Reason // "" is accepted
		text   []string
	}{
		"its CA":              {v: v, trust: vcenter.Trust{CA: v.CA}},
		"SHA-1":               {v: v, trust: vcenter.Trust{Thumbprint: v.SHA1}},
		"SHA-256":             {v: v, trust: vcenter.Trust{Thumbprint: v.SHA256}},
		"lower case":          {v: v, trust: vcenter.Trust{Thumbprint: strings.ToLower(v.SHA256)}},
		"insecure":            {v: expired, trust: vcenter.Trust{Insecure: true}},
		"thumbprint, by name": {v: named, trust: vcenter.Trust{Thumbprint: named.SHA1}},
		"system roots":        {v, vcenter.Trust{}, fault.CertificateInvalid, []string{"unknown CA", "spec.ca", v.SHA1, v.SHA256, "vcsim CA"}},
		"another CA":          {v, vcenter.Trust{CA: other.CA}, fault.CertificateInvalid, []string{"unknown CA"}},
		"stale SHA-1":         {v, vcenter.Trust{Thumbprint: other.SHA1}, fault.CertificateInvalid, []string{v.SHA1, other.SHA1}},
		"stale SHA-256":       {v, vcenter.Trust{Thumbprint: other.SHA256}, fault.CertificateInvalid, []string{v.SHA256, other.SHA256}},
		"wrong name":          {named, vcenter.Trust{CA: named.CA}, fault.CertificateInvalid, []string{"valid for 10.9.8.7, not 127.0.0.1", "set spec.vcIp"}},
		"no name":             {nameless, vcenter.Trust{CA: nameless.CA}, fault.CertificateInvalid, []string{"127.0.0.1", "reissue"}},
		"expired":             {expired, vcenter.Trust{CA: expired.CA}, fault.CertificateInvalid, []string{"expired", "renew"}},
		"CA is not PEM":       {v, vcenter.Trust{CA: []byte("not PEM")}, fault.InvalidInput, []string{"no PEM certificate", "spec.ca"}},
		"CA is empty":         {v, vcenter.Trust{CA: []byte{}}, fault.InvalidInput, []string{"no PEM certificate", "spec.ca"}},
		"CA is a key":         {v, vcenter.Trust{CA: []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")}, fault.InvalidInput, []string{"no PEM certificate"}},
		"stale, insecure": {v, vcenter.Trust{Thumbprint: other.SHA256, Insecure: true}, fault.CertificateInvalid,
			[]string{v.SHA256}},
	} {
		t.Run(name, func(t *testing.T) {
			tg := target(c.v)
			tg.Trust = c.trust
			r, err := vcenter.Check(t.Context(), tg)
			if c.reason == "" {
				require.NoError(t, err)
				return
			}
			refused(t, err, c.reason, c.text...)
			require.Empty(t, r.Thumbprint, "a certificate that was refused is not reported as served")
		})
	}
	for _, x := range []*vcsim.VCenter{v, other, named, expired} {
		noSession(t, x)
	}
	require.Zero(t, other.Logins(vcsim.Admin.Username), "no password is sent over an untrusted connection")
}

func TestLoginsThatFail(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	login := func(user, password string) (vcenter.Report, error) {
		tg := target(v)
		tg.Username, tg.Password = user, vcenter.Password(password)
		return vcenter.Check(t.Context(), tg)
	}

	r, err := login(vcsim.Admin.Username, "wrong-canary")
	refused(t, err, fault.Unauthorized, "refuses the user name or password of "+vcsim.Admin.Username, "spec.credentials",
		"reconcile.vdo.vmware.com/requestedAt")
	require.NotContains(t, fault.Text(err), "wrong-canary")
	require.Equal(t, "8.0.3", r.Version, "a wrong password does not hide the version")

	_, err = login("k8s@corp.example", "wrong-canary")
	refused(t, err, fault.Unauthorized, "federated identity provider", "NAME@vsphere.local")

	refused(t, must.Err(login("administrator", "wrong-canary")), fault.Unauthorized, "NAME@DOMAIN")

	_, err = login(vcsim.Stranger.Username, vcsim.Stranger.Password)
	refused(t, err, fault.Forbidden, "no role", "ReadOnly")

	_, err = login(vcsim.Reader.Username, vcsim.Reader.Password)
	refused(t, err, fault.Forbidden, "lacks the privilege System.View", "ReadOnly")

	_, err = login("  ", "")
	refused(t, err, fault.InvalidInput, "key password is absent", "key username is absent",
		"the keys username and password")

	v.Break("Login", &types.InvalidLogin{}, "User account is locked. Please contact your administrator.")
	_, err = login(vcsim.Admin.Username, vcsim.Admin.Password)
	refused(t, err, fault.AccountLocked, "is locked", "unlock it", "or at once after")
	v.Mend()

	v.Break("Login", &types.PasswordExpired{})
	refused(t, must.Err(login(vcsim.Admin.Username, vcsim.Admin.Password)), fault.Unauthorized, "expired")
	v.Mend()

	v.Break("Login", &types.InvalidState{})
	_, err = login(vcsim.Admin.Username, vcsim.Admin.Password)
	require.Equal(t, fault.Internal, fault.ReasonOf(err), "%v", err)
	noSession(t, v)
}

// The drivers find a datacenter whose name has a slash only by the name as the vCenter escapes it.
func TestMissingDatacentersAreNamedTogether(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	vcsim.ChangeEach(v, "Datacenter", func(d *simulator.Datacenter) {
		if d.Name == "lab" {
			d.Name = "a%2fb"
		}
	})
	tg := target(v)
	tg.Datacenters = []string{"a%2fb", "a/b", "east", "south", "site/west", "south"}
	r, err := vcenter.Check(t.Context(), tg)
	refused(t, err, fault.NotFound, `["a/b" "east" "south"] not there or not readable; the account sees /a%2fb, `,
		"/site/prod/east", "correct spec.datacenters", "ReadOnly")
	require.Equal(t, []string{"a/b", "east", "south"}, r.Missing)
	require.Equal(t, "8.0.3", r.Version)
	noSession(t, v)
}

// Of two runs at once, one finds a VM on that the other has powered on. A vCenter that refuses a task has answered.
func TestTasksOfAVM(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{Machines: 1})
	vms := must.Have(v.VMs(t.Context(), "/site/west"))(t)
	var id string
	power := func(is types.VirtualMachinePowerState) {
		require.NoError(t, v.Change(vms[0].Path, func(vm *mo.VirtualMachine) {
			id, vm.Runtime.PowerState = vm.Self.Type+"-"+vm.Self.Value, is
		}))
	}
	a := must.Have(vcenter.Open(t.Context(), as(v, vcsim.Administrator)))(t)
	defer a.Close()
	power(types.VirtualMachinePowerStatePoweredOn)
	require.NoError(t, a.PowerOn(t.Context(), id))
	err := a.MarkTemplate(t.Context(), id)
	refused(t, err, fault.Conflict, "make a template of "+vms[0].Path+" in", "the VM is poweredOn")
	power(types.VirtualMachinePowerStatePoweredOff)
	err = a.Fix(t.Context(), id, preflight.Hardware, "vmx-99")
	refused(t, err, fault.Internal, "upgrade to vmx-99 the hardware of "+vms[0].Path, "tasks and events")
}

func TestASessionEndsAlsoAfterAFailure(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	v.Break("CreateContainerView", &types.NoPermission{PrivilegeId: "System.View", Object: &types.ManagedObjectReference{Type: "Folder", Value: "group-d1"}})
	refused(t, must.Err(vcenter.Check(t.Context(), target(v))), fault.Forbidden, "System.View on /")
	noSession(t, v)

	v.Mend()
	v.Break("CreateContainerView", &types.NotAuthenticated{})
	_, err := vcenter.Check(t.Context(), target(v))
	require.Equal(t, fault.Unreachable, fault.ReasonOf(err), "%v", err)
	require.Equal(t, 2, v.Logins(vcsim.Admin.Username))
	noSession(t, v)
}

// The caller gives up exactly while the vCenter works on the datacenters: the
// session that is open by then has to end all the same.
func TestASessionEndsAlsoAfterCancel(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	next := passOn(v)
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "CreateContainerView") {
			n, err := v.SessionCount(context.Background())
			if err != nil || n != 1 {
				t.Errorf("sessions open in between: %d, %v", n, err)
			}
			cancel()
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
	_, err := vcenter.Check(ctx, p)
	require.Equal(t, fault.Interrupted, fault.ReasonOf(err), "%v", err)
	require.ErrorIs(t, err, context.Canceled)
	noSession(t, v)
}

// rewritten puts an HTTPS server before the vCenter that changes each answer.
func rewritten(t testing.TB, v *vcsim.VCenter, change func(body string) string) vcenter.Target {
	t.Helper()
	p := passOn(v)
	p.ModifyResponse = func(r *http.Response) error {
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(change(string(body))))
		r.Header.Del("Content-Length")
		return err
	}
	return serve(t, p.ServeHTTP)
}

// passOn asks the vCenter what it is asked, and waits for the answer when the client has gone.
func passOn(v *vcsim.VCenter) *httputil.ReverseProxy {
	unchecked := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	return &httputil.ReverseProxy{Transport: unchecked, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "https", Host: v.Address()})
		r.Out = r.Out.WithContext(context.WithoutCancel(r.Out.Context()))
	}}
}

// serve starts some HTTPS server and returns it as a target.
func serve(t testing.TB, h http.HandlerFunc) vcenter.Target {
	t.Helper()
	s := httptest.NewTLSServer(h)
	t.Cleanup(s.Close)
	return at(s.Listener)
}

func at(l net.Listener) vcenter.Target {
	a := l.Addr().(*net.TCPAddr)
	return vcenter.Target{Host: a.IP.String(), Port: a.Port, Username: vcsim.Admin.Username,
		Password: vcenter.Password(vcsim.Admin.Password), Trust: vcenter.Trust{Insecure: true}}
}

func TestHostsThatCannotBeReached(t *testing.T) {
	closed := must.Have(net.Listen("tcp", "127.0.0.1:0"))(t)
	require.NoError(t, closed.Close())
	refused(t, must.Err(vcenter.Check(t.Context(), at(closed))), fault.Unreachable, "connection refused", "spec.port")

	tg := at(closed)
	tg.Host = "no-such-host.invalid"
	_, err := vcenter.Check(t.Context(), tg)
	require.Equal(t, fault.Unreachable, fault.ReasonOf(err), "%v", err)
	require.Contains(t, fault.Text(err), "no-such-host.invalid")

	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the backlog, and says nothing
	require.NoError(t, err)
	defer silent.Close()
	tg = at(silent)
	tg.Timeout = 50 * time.Millisecond
	_, err = vcenter.Check(t.Context(), tg)
	refused(t, err, fault.Unreachable, "does not answer: context deadline exceeded", "TCP "+strconv.Itoa(tg.Port))
}

func TestServersThatAreNoVCenter(t *testing.T) {
	answers := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, c := range map[string]struct {
		h      http.HandlerFunc
		reason fault.Reason
		text   string
	}{
		"404":         {answers(404, "no"), fault.InvalidInput, "404 Not Found"},
		"401":         {answers(401, "no"), fault.InvalidInput, "401"},
		"a page":      {answers(200, "<html><body>hello</body></html>"), fault.InvalidInput, "list of API versions"},
		"no XML":      {answers(200, "hello"), fault.InvalidInput, "list of API versions"},
		"another API": {answers(200, "<namespaces><namespace><name>urn:other</name><version>1</version></namespace></namespaces>"), fault.InvalidInput, "vim25"},
		"starting":    {answers(503, "wait"), fault.Unreachable, "503 Service Unavailable"},
		"too busy":    {answers(429, "wait"), fault.Throttled, "429"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere/", http.StatusTemporaryRedirect)
		}, fault.InvalidInput, "redirect"},
		"hangs up":        {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, fault.Unreachable, "it does not answer: EOF"},
		"endless garbage": {func(w http.ResponseWriter, _ *http.Request) { endless(w) }, fault.InvalidInput, "list of API versions"},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, must.Err(vcenter.Check(t.Context(), serve(t, c.h))), c.reason, c.text)
		})
	}

	plain := httptest.NewServer(answers(200, "plain"))
	defer plain.Close()
	refused(t, must.Err(vcenter.Check(t.Context(), at(plain.Listener))), fault.InvalidInput, "does not speak TLS")

	esxi := vcsim.Start(t, vcsim.Options{ESXi: true})
	_, err := vcenter.Check(t.Context(), target(esxi))
	refused(t, err, fault.InvalidInput, "not a vCenter: it is VMware ESXi", "spec.vcIp")
	require.Zero(t, esxi.Logins(vcsim.Admin.Username), "no password for what is not a vCenter")
}

// endless writes until the client goes away.
func endless(w io.Writer) {
	for {
		if _, err := io.WriteString(w, "<namespaces>"+strings.Repeat(" ", 4096)); err != nil {
			return
		}
	}
}

func TestVersions(t *testing.T) {
	for version, ok := range map[string]bool{
		"6.0.0": false, "6.5.0": false, "6.7.0": true, "6.7.3": true, "7.0.3": true, "8.0.3": true, "9.1.0": true, "10.0.0": true,
	} {
		t.Run(version, func(t *testing.T) {
			v := vcsim.Start(t, vcsim.Options{Version: version})
			r, err := vcenter.Check(t.Context(), target(v))
			require.Equal(t, version, r.Version)
			if ok {
				require.NoError(t, err)
				return
			}
			refused(t, err, fault.Incompatible, "vCenter "+version+" is older than 6.7 U3", "upgrade")
			require.Zero(t, v.Logins(vcsim.Admin.Username))
		})
	}
}

func TestAPasswordDoesNotPrint(t *testing.T) {
	tg := vcenter.Target{Username: "u", Password: "canary"}
	data := must.Have(json.Marshal(tg))(t)
	for _, s := range []string{fmt.Sprint(tg), fmt.Sprintf("%+v", tg), fmt.Sprintf("%#v", tg), fmt.Sprintf("%q", tg.Password), string(data)} {
		require.NotContains(t, s, "canary")
	}
}

// Answers that no one expects are faults of that vCenter, and no session stays open after them.
func TestAnswersThatCannotBeUnderstoodAreFaults(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	for what, was := range map[string]string{
		"no views":          `<viewManager.*?</viewManager>`,
		"no authorizations": `<authorizationManager.*?</authorizationManager>`,
	} {
		find, changed := regexp.MustCompile(was), 0
		strange := rewritten(t, v, func(body string) string {
			changed += len(find.FindAllString(body, -1))
			return find.ReplaceAllString(body, "")
		})
		ask := vcenter.Ask{Nodes: nodesOf(vmsOf(t, v, "/site/prod/east")), Features: everything}
		got := vcenter.Inspect(t.Context(), strange, ask)
		require.Positive(t, changed, what)
		require.Error(t, got.Err, what)
		require.Equal(t, fault.Incompatible, fault.ReasonOf(got.Err), "%s: %v", what, got.Err)
		noSession(t, v)
	}
}

// The service of volumes refuses an action of a version that it does not have, as in govmomi v0.56.0,
// cns/client.go, NewClient: the version is that of vsanServiceVersions.xml.
func TestVolumesAreAskedForInTheirVersion(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	next := passOn(v)
	actions := map[string]bool{}
	seen := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/vsanHealth" {
			actions[r.Header.Get("SoapAction")] = true
		}
		next.ServeHTTP(w, r)
	})
	got := vcenter.Inspect(t.Context(), seen, vcenter.Ask{Features: everything})
	require.NoError(t, got.Failed[preflight.CNS])
	require.Equal(t, map[string]bool{"urn:vsan/8.0.3.0": true}, actions)
}
