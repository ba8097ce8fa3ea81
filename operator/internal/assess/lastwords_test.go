package assess

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is quoted of a container's last words: the line that tells most, the same at each
// attempt.
func TestTheLineThatTellsMost(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":  {"", ""},
		"blank":    {"\n \n\t\n", ""},
		"one line": {"exec: no such file\n", "exec: no such file"},
		"klog": {
			"I1122 10:11:12.123456       1 main.go:10] starting\nF1122 10:11:13.123456       1 main.go:99] cloud config: no vCenter\nI1122 10:11:13.2       1 x.go:1] bye\n",
			"cloud config: no vCenter"},
		"an error, then talk": {"E1122 10:11:13.123456       1 main.go:99] cannot list zones\nI1122 10:11:13.2       1 x.go:1] bye", "cannot list zones"},
		"the last error":      {"E1122 10:11:13.123456       1 a.go:1] first\nE1122 10:11:14.123456       1 a.go:1] second", "second"},
		"zap": {
			`{"level":"info","time":"2026-11-22T10:11:12Z","caller":"main.go:1","msg":"hello"}` + "\n" +
				`{"level":"error","time":"2026-11-22T10:11:13.1Z","caller":"main.go:9","msg":"cannot read config","error":"no such file","TraceId":"8a1c"}` + "\n",
			"cannot read config: no such file"},
		"a sign before what follows from it": {
			"2026-11-22T10:11:12.5Z ServerFaultCode: Cannot complete login due to an incorrect user name or password.\nF1122 10:11:13.1       1 main.go:9] giving up",
			"ServerFaultCode: Cannot complete login due to an incorrect user name or password."},
		"a panic": {
			"panic: runtime error: invalid memory address [signal SIGSEGV addr=0x10f2c]\n\ngoroutine 1 [running]:\nmain.main()\n\t/src/main.go:7 +0x1d\n",
			"panic: runtime error: invalid memory address [signal SIGSEGV addr=]"},
		"JSON that is none":   {`{"level":"error"`, `{"level":"error"`},
		"JSON of nothing":     {`{"a":1}`, `{"a":1}`},
		"no UTF-8":            {"panic: \xff", "panic: \uFFFD"},
		"times within a line": {"failed at 2026/11/22 10:11:12.123 for good", "failed at  for good"},
	} {
		require.Equal(t, c.want, tellingLine(c.text), name)
	}
}

// secretNames are words after which a secret may come.
var secretNames = []string{
	"password", "Passwords", "PASSWD", "passw", "vsphere-password", "VSPHERE_PASSWORD", "pass:", "userPass=", "PASS ", "passphrase", "pwd", "secret", "pull_secret", "secrets",
	"token", "id-token", "credential", "credentials", "bearer", "Authorization", "private key", "private_key", "PrivateKey", "api-key", "apikey", "access key", "Set-Cookie",
	"vmware_soap_session", "session id", " creds:", " basic ", ` "auth":`,
}

func TestNoSecretsInLastWords(t *testing.T) {
	const canary = "Canary9"
	for _, text := range []string{
		"bad line: password = " + canary, `password: "` + canary + ` with spaces"`, "vc.password=" + canary + " x", `{"level":"fatal","msg":"config {Password:` + canary + `}"}`,
		"Authorization: Bearer " + canary, "authorization: basic " + canary, "dial https://admin:" + canary + "@vc.site/sdk: refused",
		"token=" + canary + "&x=1", "--secret-key=" + canary, "pwd='" + canary + "'",
		"Password:ab,cd" + canary, "{Password:correct horse " + canary + " Port:443}", `"password":"ab\"cd` + canary + `"`, `{"a":1,"password":"ab\"` + canary + `"}`,
		`password "` + canary + `" rejected`, "--vsphere-password " + canary, "<password>" + canary + "</password>", "pass: " + canary, "login with pass " + canary,
		"https://admin:p@ss/" + canary + "@vc", "https://admin:p@" + canary + "@vc", `parse "https://admin:p ss` + canary + `@vc": invalid userinfo`, "https://" + canary + "@vc",
		"https://admin:my-password" + canary + "@vc", "https://admin:" + canary + "-password@vc", "https://password@vc " + canary, "https://a:b@vc password " + canary,
		"pass\xffword pass\xff " + canary, "password 2026-11-22T10:11:12Z " + canary, "password\n" + "password:\n  " + canary + "\n", "password: |\n\n" + canary,
		`{"level":"error","msg":"password:","error":"` + canary + `"}`, `{"level":"error","msg":"password:\n` + canary + `"}`,
		"-----BEGIN RSA PRIVATE KEY-----\nMIIE\n" + canary + "\n-----END RSA PRIVATE KEY-----",
		"-----BEGIN OPENSSH PRIVATE KEY-----\n" + canary + "\n" + canary, `key "-----BEGIN PRIVATE KEY-----\n` + canary + `"`,
	} {
		got := tellingLine(text)
		require.NotContains(t, got, canary, text)
		require.True(t, strings.Contains(got, hidden) || strings.Contains(text, "\n"), text)
	}
	for _, name := range secretNames {
		for _, between := range []string{"", ":", " ", " = ", `":"`, "='", ">", `\":\"ab`, " for a@b ", "[0] ", " is x, "} {
			require.NotContains(t, tellingLine("config "+name+" "+between+canary), canary, name+between)
		}
	}
}

// What is hidden is no more than has to be, and never the cause that is known.
func TestWhatStaysOfALineWithASecret(t *testing.T) {
	for text, want := range map[string]string{
		"Password:ab,cdEF12":                  "Password (hidden)",
		"config: password = x y":              "config: password (hidden)",
		"get https://admin:p@ss/w0rd@vc/sdk":  "get https://(hidden)@vc/sdk",
		"incorrect user name or password.":    "incorrect user name or password.",
		"the test passed: a compass":          "the test passed: a compass",
		"https://vc.site/sdk: i/o timeout":    "https://vc.site/sdk: i/o timeout",
		"mail a@b about https://vc.site/sdk":  "mail a@b about https://vc.site/sdk",
		"signed by an unknown authority":      "signed by an unknown authority",
		"password=x: Cannot complete login y": "password (hidden): Cannot complete login",
		`secrets "x" is forbidden: User "y"`:  "secrets (hidden): is forbidden: User",
	} {
		require.Equal(t, want, tellingLine(text), text)
	}
}

func TestKnownSecretsAreNeverQuoted(t *testing.T) {
	const password, longer = `p"a ß/7%`, `p"a ß/7% and more`
	in := Input{Secrets: []string{password, longer, "", "abc"}}
	for _, form := range []string{
		password, longer, `p\"a ß/7%`, url.QueryEscape(password), url.PathEscape(password), base64.StdEncoding.EncodeToString([]byte(password)), strings.Repeat("x", maxQuote-4) + password,
	} {
		for _, got := range []string{in.quote("x " + form + " y"), in.quote(tellingLine(in.hide("refused " + form + " y")))} {
			require.NotContains(t, got, form)
			require.NotContains(t, got, `p"a`)
			require.NotContains(t, got, "and more")
		}
	}
	for password, forms := range map[string][]string{
		"<a&b>\"":   {`\u003ca\u0026b\u003e\"`, `<a&b>\"`}, // as JSON for pages, and for all else
		"tab\there": {`tab\there`},
	} {
		in := Input{Secrets: []string{password}}
		for _, form := range forms {
			require.Equal(t, "x (hidden) y", in.quote("x "+form+" y"), password)
		}
	}
	require.Equal(t, strings.Repeat("x", 300)+"…", in.quote(strings.Repeat("x", 301)))
	require.Equal(t, "abc it is", in.quote("abc it is"), "too short to be one")
	require.Equal(t, "https://(hidden)@vc", in.quote("https://admin:p@ss/w0rd@vc"))
	require.Equal(t, "a\uFFFDb", in.quote("a\xff\xfeb"), "the API server takes UTF-8 alone")
}

func FuzzSecretAfterItsName(f *testing.F) {
	f.Add("config: ", "={", "} refused", 0)
	f.Add("https://admin:", "@", "@vc", 3)
	f.Add("x\n\xff", `":"a\"b,`, "\ny", 7)
	f.Add("E1122 10:11:13.1       1 a.go:1] x ", " 2026-11-22T10:11:12Z ", ": Cannot complete login", 12)
	f.Fuzz(func(t *testing.T, before, between, after string, name int) {
		const canary = "Canary9"
		between = strings.ReplaceAll(between, "\n", " ")
		line := before[strings.LastIndex(before, "\n")+1:] + " " + secretNames[uint(name)%uint(len(secretNames))] + between
		if head := klogHead.FindString(strings.TrimSpace(line + canary)); strings.Contains(before+between+after, canary) ||
			strings.HasPrefix(strings.TrimSpace(line), "{") || strings.HasSuffix(strings.TrimSpace(head), "]") && len(head) > len(before) {
			return // another field of a structured line, or its head
		}
		var in Input
		require.NotContains(t, in.quote(tellingLine(before+" "+secretNames[uint(name)%uint(len(secretNames))]+between+canary+after)), canary)
	})
}
