package logins

import "strings"

// place is where an account is used, and under which name.
type place struct{ address, name string }

func (q Question) place() place { return place{q.address(), spelled(q.Username)} }

// spelled is a name as one that is only written differently is spelled too: vCenters have
// no letter case in names, and DOMAIN\name is name@domain.
func spelled(username string) string {
	name := strings.ToLower(username)
	if domain, user, ok := strings.Cut(name, `\`); ok {
		return user + "@" + domain
	}
	return name
}

// user is the part of a name that is the user's own.
func user(username string) string {
	name, _, _ := strings.Cut(spelled(username), "@")
	return name
}
