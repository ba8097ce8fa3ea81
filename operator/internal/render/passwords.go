package render

import (
	"maps"
	"slices"
	"strings"
)

// Passwords returns the passwords, and the tokens of a session manager, in the data of a drivers' Secret. It knows both
// forms that the drivers read: a settings file, and one key each.
func Passwords(data map[string][]byte) []string {
	const word = "password"
	var all []string
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if strings.Contains(strings.ToLower(key), word) {
			all = append(all, strings.TrimRight(string(data[key]), "\r\n")) // messages may have it without its line end
			continue
		}
		for _, s := range readSettings(data[key]) {
			if s.key == word || s.key == "vcsessionmanagertoken" {
				all = append(all, s.value)
			}
		}
	}
	return slices.DeleteFunc(all, func(p string) bool { return p == "" })
}
