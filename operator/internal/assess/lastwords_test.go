package assess

import (
	"testing"
	"unicode/utf8"

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
		"times within a line": {"failed at 2026/11/22 10:11:12.123 for good", "failed at  for good"},
	} {
		require.Equal(t, c.want, tellingLine(c.text), name)
	}
}

func TestNoSecretsInLastWords(t *testing.T) {
	const canary = "Canary9"
	for _, text := range []string{
		"bad line: password = " + canary, `password: "` + canary + ` with spaces"`, "vc.password=" + canary + " x", `{"level":"fatal","msg":"config {Password:` + canary + `}"}`,
		"Authorization: Bearer " + canary, "authorization: basic " + canary, "dial https://admin:" + canary + "@vc.site/sdk: refused",
		"token=" + canary + "&x=1", "--secret-key=" + canary, "pwd='" + canary + "'",
	} {
		got := tellingLine(text)
		require.NotContains(t, got, canary, text)
		require.Contains(t, got, "(hidden)", text)
	}
}

// Whatever a container writes, what is quoted is one bounded line.
func FuzzTellingLine(f *testing.F) {
	f.Add("E1122 10:11:13.1       1 a.go:1] x\npassword: y")
	f.Add(`{"level":"error","msg":"a\nb"}`)
	f.Add("panic: \xff")
	f.Fuzz(func(t *testing.T, text string) {
		got := quote(tellingLine(text))
		require.NotContains(t, got, "\n")
		require.LessOrEqual(t, len(got), maxQuote+len("…"))
		require.True(t, !utf8.ValidString(text) || utf8.ValidString(got))
		require.Equal(t, tellingLine(text), tellingLine(text))
	})
}
