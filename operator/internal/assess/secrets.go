package assess

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Quoted texts may contain a secret: a driver logs its configuration, a library an address with an account. A
// password may contain any character, so no syntax marks its end. Better hide too much than show a part.

const hidden = "(hidden)"

// shortest is the minimum length of a known secret, in bytes. Shorter ones are parts of common words, and no vCenter
// accepts them.
const shortest = 4

var (
	// secretWord matches a name for a secret, also within a longer one, such as --vsphere-password or PULL_SECRET.
	secretWord = regexp.MustCompile(`((?i:passw(?:(?:or)?ds?)?|pass(?:phrase|code|key)s?|pwd|secrets?|tokens?|credentials?|bearer|authorization|cookies?|` +
		`soap_session|\bcreds?\b|\bbasic\s|\bauths?["'\\]*\s*[:=]|(?:private|api|access|session|ssh|signing|encryption)[^a-z0-9]*keys?|session[^a-z0-9]*ids?))|((?i:pass))(?:[^a-z]|$)`)
	// account matches an account in an address, to the last @ of the word. If the password has a space, it matches
	// to the last @ before a quote.
	account = regexp.MustCompile(`://(?:[^\s/@:]+:[^\s\d/][^"]*|\S*)@`)
)

// wordParts has a part of each such word. With thousands of pods, the pattern runs only on texts that may match.
var wordParts = []string{"pass", "pwd", "secret", "token", "cred", "bearer", "auth", "cookie", "session", "basic", "key"}

// wordEnd returns the end of the first such word of a line, or -1.
func wordEnd(line string) int {
	lower := strings.ToLower(line)
	if !slices.ContainsFunc(wordParts, func(part string) bool { return strings.Contains(lower, part) }) {
		return -1
	}
	word := secretWord.FindStringSubmatchIndex(line)
	if word == nil {
		return -1
	}
	return max(word[3], word[5])
}

// withoutSecrets drops the rest of a line after a word that announces a secret, and hides accounts in addresses. It
// repeats the sign of a known cause if that was dropped.
func withoutSecrets(line string) string {
	shown := withoutAccounts(line)
	if end := secretFrom(line); end < len(line) {
		shown = strings.TrimRight(withoutAccounts(line[:end]), " \t:=") + " " + hidden
	}
	if s := signOf(line); s != nil && !strings.Contains(shown, s.fragment) {
		shown += ": " + s.fragment
	}
	return shown
}

// secretFrom returns where a line must end, because a word before announces a secret.
func secretFrom(line string) int {
	end := wordEnd(line)
	if end < 0 {
		return len(line)
	}
	if remaining := line[end:]; len(remaining) <= 2 && strings.Trim(remaining, `.,:;"')]}>`) == "" {
		return len(line) // the sentence ends with the word
	}
	for _, address := range account.FindAllStringIndex(line, -1) {
		if address[0] < end && end < address[1] {
			return address[0] + len("://") // the word is a part of an account
		}
	}
	return end
}

func withoutAccounts(s string) string {
	if strings.Contains(s, "://") {
		s = account.ReplaceAllString(s, "://"+hidden+"@")
	}
	return s
}

// announces reports whether a line, not empty, ends in a way that a secret follows on the next one.
func announces(line string) bool {
	const quotes, signs = " \t\"'`\\", ":=|>-"
	if strings.Trim(line[len(line)-1:], quotes+signs) != "" {
		return false
	}
	end := wordEnd(line)
	if end < 0 {
		return false
	}
	remaining := strings.Trim(line[end:], quotes)
	return strings.Trim(remaining, quotes+signs) == "" && (remaining != "" || strings.ContainsAny(line[end-1:end], signs))
}

// hider replaces known secrets, also in the encodings of JSON, addresses and docker's configuration.
func hider(secrets []string) *strings.Replacer {
	var forms []string
	for _, secret := range secrets {
		if len(secret) < shortest {
			continue
		}
		quoted, _ := json.Marshal(secret) //nolint:errcheck,errchkjson // any string is JSON
		text := strconv.Quote(secret)     // as in %q, and in JSON that keeps < > &
		forms = append(forms, secret, string(quoted[1:len(quoted)-1]), text[1:len(text)-1], url.QueryEscape(secret), url.PathEscape(secret),
			strings.TrimPrefix(url.UserPassword("", secret).String(), ":"), base64.StdEncoding.EncodeToString([]byte(secret)))
	}
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) }) // longest first, since forms overlap
	var pairs []string
	for _, form := range slices.Compact(forms) {
		pairs = append(pairs, form, hidden)
	}
	return strings.NewReplacer(pairs...)
}

// hide replaces the known secrets.
func (in *Input) hide(s string) string {
	if in.hider == nil {
		in.hider = hider(in.Secrets)
	}
	return in.hider.Replace(s)
}
