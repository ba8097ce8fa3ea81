package render

import (
	"maps"
	"slices"
	"strings"
)

// Passwords are the passwords in the data of a Secret that drivers are configured by, in each of
// the forms that the drivers read: a file of settings, and a key for each.
func Passwords(data map[string][]byte) []string {
	const word = "password"
	var all []string
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if strings.Contains(strings.ToLower(key), word) {
			all = append(all, string(data[key]))
			continue
		}
		for _, s := range readSettings(data[key]) {
			if s.key == word {
				all = append(all, s.value)
			}
		}
	}
	return slices.DeleteFunc(all, func(p string) bool { return p == "" })
}
