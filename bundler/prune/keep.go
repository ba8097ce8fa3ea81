package prune

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/list"
)

// Keep selects the bundles that prune keeps.
type Keep struct {
	Newest  int      // number of bundles; at least 1
	Tags    []string // patterns of path.Match; a bundle with a matching tag stays
	Digests []string // of roots, complete or at least the first 12 hex digits
}

// part splits bundles, newest first, into kept ones, with the reason, and the others. A name without a match is a
// fault: it may be mistyped.
func (k Keep) part(bundles []list.Bundle) (stay, leave []list.Bundle, err error) {
	stay, leave, used := []list.Bundle{}, []list.Bundle{}, map[string]bool{} // never null in JSON
	for i, b := range bundles {
		newer := 0
		for _, other := range bundles {
			if list.ShownNewer(other, b) && (len(b.Tags) == 0 || len(other.Tags) > 0) { // a tag may have moved back
				newer++
			}
		}
		named, err := k.names(b, used)
		switch {
		case err != nil:
			return nil, nil, err
		case named != "":
			b.Why = named
		case newer < k.Newest && i < k.Newest:
			b.Why = fmt.Sprintf("one of the newest %d", k.Newest)
		case newer < k.Newest:
			b.Why = fmt.Sprintf("nothing shows that %d others are newer", k.Newest)
		default:
			leave = append(leave, b)
			continue
		}
		stay = append(stay, b)
	}
	return stay, leave, k.unused(used)
}

// unused returns a fault if a name matched no bundle.
func (k Keep) unused(used map[string]bool) error {
	for _, name := range slices.Concat(k.Tags, k.Digests) {
		if !used[name] {
			return fault.Errorf(fault.NotFound, "plan to prune", fmt.Sprintf("%q", name),
				"see `vdo-bundle list` for tags and digests, or leave it out", "it names no bundle that is to be kept")
		}
	}
	return nil
}

const leastDigits = 12 // of a digest, as list shows it

// names returns the flag that keeps a bundle, or "".
func (k Keep) names(b list.Bundle, used map[string]bool) (why string, err error) {
	for _, pattern := range k.Tags {
		for _, tag := range append([]string{""}, b.Tags...) { // the empty one makes sure that every pattern is checked
			ok, err := path.Match(pattern, tag)
			if err != nil {
				return "", fault.Errorf(fault.InvalidInput, "read flag --keep-tag", fmt.Sprintf("%q", pattern),
					"write * for any characters, ? for one, [a-z] for one of some", "%w", err)
			}
			if ok && tag != "" {
				used[pattern], why = true, "--keep-tag "+pattern
			}
		}
	}
	for _, digest := range k.Digests {
		hex := strings.TrimPrefix(digest, "sha256:")
		if len(hex) >= leastDigits && strings.HasPrefix(b.Root.Hex(), hex) {
			used[digest], why = true, "--keep-digest "+digest
		}
	}
	return why, nil
}
