package services

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services/dex"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

const patience = 2 * time.Minute

// A user of the tenant logs in at the real Dex, which runs what was rendered, and the
// tenant's API server, which was given what was rendered for it to trust, knows the user by
// the token.
func TestLoginIsAcceptedByTheAPIServer(t *testing.T) {
	program := toolchain.Path(t, "dex")
	web, telemetry := freeAddress(t), freeAddress(t)
	in := full(t)
	in.Now, in.Spec.Auth[0].Issuer = time.Now(), "https://"+web+"/login"
	set := rendered(t, in)
	login := set.of(t, Auth)
	trusted := []byte(object[corev1.ConfigMap](t, login, "ConfigMap", login.Name+"-trust").Data["ca.crt"])
	moved := map[string]string{
		`":5556"`: `"` + web + `"`, `":5558"`: `"` + telemetry + `"`,
		`"inCluster": true`: `"kubeConfigFile": "` + dexAccount(t) + `"`,
	}
	end := runDex(t, program, login, moved)
	user := newBrowser(t, trusted, in.Spec.Auth[0])
	require.Eventually(t, user.ready, patience, 100*time.Millisecond, "dex does not answer")

	require.Empty(t, user.code("alice@tenant.site", "wrong"))
	token, refresh := user.redeem(url.Values{
		"grant_type": {"authorization_code"}, "redirect_uri": {callback},
		"code": {user.code("alice@tenant.site", password)},
	})
	end()
	runDex(t, program, login, moved)
	require.Eventually(t, user.ready, patience, 100*time.Millisecond, "dex does not answer again")
	_, again := user.redeem(url.Values{"grant_type": {"refresh_token"}, "refresh_token": {refresh}})
	require.NotEmpty(t, again, "who was logged in is, though the pod was replaced")
	ca := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(ca, trusted, 0o600))
	tenant := cluster.New(t, cluster.Options{APIServer: []string{
		"--oidc-issuer-url", in.Spec.Auth[0].Issuer, "--oidc-client-id", "console", "--oidc-username-claim", "email", "--oidc-ca-file", ca,
	}})
	require.Eventually(t, func() bool { return whoIs(t, tenant.Config(), token) == "alice@tenant.site" }, patience, 100*time.Millisecond)
	require.Empty(t, whoIs(t, tenant.Config(), token+"x"))
}

// whoIs asks the API server who has a token; "" is nobody.
func whoIs(t *testing.T, admin *rest.Config, token string) string {
	t.Helper()
	cfg := rest.AnonymousClientConfig(admin)
	cfg.BearerToken = token
	client, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return ""
	}
	return review.Status.UserInfo.Username
}

// dexAccount returns the file by which Dex reaches an API server, with the shipped kinds, as the account that
// its pod has, with its rights and no more.
func dexAccount(t *testing.T) string {
	t.Helper()
	cfg := cluster.Config(t)
	namespace := cluster.Namespace(t, cfg)
	typed, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	admin, err := client.New(cfg, client.Options{})
	require.NoError(t, err)
	require.NoError(t, cluster.SIPOperator.Grant(t.Context(), admin))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: account.ObjectMeta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "vdo-sip-dex"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "default"}},
	}
	require.NoError(t, client.IgnoreAlreadyExists(admin.Create(t.Context(), account)))
	require.NoError(t, admin.Create(t.Context(), binding))
	accounts, request := typed.CoreV1().ServiceAccounts(namespace), &authenticationv1.TokenRequest{}
	token, err := accounts.CreateToken(t.Context(), "default", request, metav1.CreateOptions{})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.CurrentContext = "dex"
	config.Contexts["dex"] = &clientcmdapi.Context{Cluster: "dex", AuthInfo: "dex", Namespace: namespace}
	config.Clusters["dex"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	config.AuthInfos["dex"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	return file
}

// runDex runs what was rendered, with the pod's folders and ports moved to where a test
// can have them.
func runDex(t *testing.T, program string, s Service, moved map[string]string) (end func()) {
	t.Helper()
	dir := t.TempDir()
	certificate := object[corev1.Secret](t, s, "Secret", s.Name+"-tls").Data
	for _, key := range []string{"tls.crt", "tls.key"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, key), certificate[key], 0o600))
	}
	text := string(object[corev1.Secret](t, s, "Secret", s.Name+"-config").Data["config.json"])
	moved[dex.TLSDir+"/tls.crt"], moved[dex.TLSDir+"/tls.key"] = dir+"/tls.crt", dir+"/tls.key"
	for from, to := range moved {
		require.Equal(t, 1, strings.Count(text, from), from)
		text = strings.Replace(text, from, to, 1)
	}
	file := filepath.Join(dir, "config.json")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))

	container := s.deployment(t).Spec.Template.Spec.Containers[0]
	require.Equal(t, []string{"dex", "serve", dex.ConfigFile}, container.Command)
	cmd := exec.Command(program, "serve", file)
	for _, e := range container.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	cmd.Env = append(cmd.Env, "HOME="+dir)
	var logged bytes.Buffer
	cmd.Stdout, cmd.Stderr = &logged, &logged
	require.NoError(t, cmd.Start())
	end = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(func() {
		end()
		if t.Failed() {
			t.Log(logged.String())
		}
		for _, secret := range []string{clientSecret, bindPassword, password, string(passwordHash())} {
			require.NotContains(t, logged.String(), secret)
		}
	})
	return end
}

// browser is a user's, and the console's that the user is led back to.
type browser struct {
	t    *testing.T
	auth airship.Auth
	http.Client
}

const callback = "https://console.site/callback"

func newBrowser(t *testing.T, trusted []byte, auth airship.Auth) *browser {
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(trusted))
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	b := &browser{t: t, auth: auth, Client: http.Client{
		Timeout: patience, Jar: jar,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
		CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			if strings.HasPrefix(r.URL.String(), callback) {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}}
	t.Cleanup(b.CloseIdleConnections)
	return b
}

// ready tells whether Dex answers under the issuer's name.
func (b *browser) ready() bool {
	var found struct{ Issuer string }
	err := b.read(func() (*http.Response, error) { return b.Get(b.auth.Issuer + "/.well-known/openid-configuration") }, &found)
	return err == nil && found.Issuer == b.auth.Issuer
}

func (b *browser) read(ask func() (*http.Response, error), into any) error {
	resp, err := ask()
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil || resp.StatusCode != http.StatusOK {
		return errors.Join(err, errors.New(resp.Status+" "+string(data)))
	}
	return json.Unmarshal(data, into)
}

// code logs in and returns the code that the console is given; "" if the password is not
// taken.
func (b *browser) code(email, password string) string {
	query := url.Values{
		"client_id": {"console"}, "redirect_uri": {callback}, "response_type": {"code"}, "scope": {"openid email offline_access"},
		"state": {"abc"}, "nonce": {"def"}, "connector_id": {"local"},
	}
	form, err := b.Get(b.auth.Issuer + "/auth?" + query.Encode())
	require.NoError(b.t, err)
	require.NoError(b.t, form.Body.Close())
	require.Equal(b.t, http.StatusOK, form.StatusCode, form.Request.URL)
	answer, err := b.PostForm(form.Request.URL.String(), url.Values{"login": {email}, "password": {password}})
	require.NoError(b.t, err)
	require.NoError(b.t, answer.Body.Close())
	to, err := answer.Location()
	if errors.Is(err, http.ErrNoLocation) {
		return ""
	}
	require.NoError(b.t, err)
	require.Equal(b.t, "abc", to.Query().Get("state"))
	return to.Query().Get("code")
}

// redeem is what the console does with a code or a refresh token: it proves itself by its secret, and gets
// the ID token.
func (b *browser) redeem(form url.Values) (idToken, refresh string) {
	var got struct {
		IDToken      string `json:"id_token"`
		RefreshToken string `json:"refresh_token"`
	}
	ask := func(secret string) error {
		form.Set("client_id", "console")
		form.Set("client_secret", secret)
		return b.read(func() (*http.Response, error) { return b.PostForm(b.auth.Issuer+"/token", form) }, &got)
	}
	require.ErrorContains(b.t, ask("guessed"), "401")
	require.NoError(b.t, ask(clientSecret))
	require.NotEmpty(b.t, got.RefreshToken)
	return got.IDToken, got.RefreshToken
}

func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}
