package matrix

import (
	"cmp"
	"fmt"
	"strings"
)

// reject returns why a release may not be chosen, requirements apart.
func (q *question) reject(r Release) (Rejection, bool) {
	for _, rule := range []struct {
		name   RejectionRule
		detail func(Release) string
	}{
		{RulePin, q.notPinned},
		{RuleWithdrawn, withdrawn},
		{RulePrerelease, q.prerelease},
		{RuleKubernetes, q.wrongKubernetes},
		{RuleVSphere, q.wrongVSphere},
		{RuleBundle, q.missing},
		{RuleRefused, q.refused},
	} {
		if rule.name == q.relaxed {
			continue
		}
		if detail := rule.detail(r); detail != "" {
			return Rejection{r.ReleaseID, rule.name, detail}, true
		}
	}
	return Rejection{}, false
}

func (q *question) notPinned(r Release) string {
	if pin := q.pin(r.Driver); !pin.IsZero() && !pin.Equal(r.Version) {
		return fmt.Sprintf("%s is pinned", pin)
	}
	return ""
}

func withdrawn(r Release) string {
	if r.State != Withdrawn {
		return ""
	}
	return cmp.Or(r.Reason, "no reason is given")
}

func (q *question) prerelease(r Release) string {
	if r.Version.IsPrerelease() && q.pin(r.Driver).IsZero() {
		return "is a pre-release, chosen only by a pin"
	}
	return ""
}

func (q *question) wrongKubernetes(r Release) string {
	switch {
	case q.minor.IsZero():
		return "the Kubernetes version is not known"
	case r.Driver == CPI && r.Version.Minor() != q.minor:
		return fmt.Sprintf("a cpi serves its own minor, not %s", q.minor)
	case !r.Kubernetes.Contains(q.minor):
		return fmt.Sprintf("serves %s, not %s", r.Kubernetes, q.minor)
	}
	return ""
}

func (q *question) wrongVSphere(r Release) string {
	if r.VSphere.Min.IsZero() && r.VSphere.Max.IsZero() {
		return ""
	}
	var out []string
	for _, s := range q.sites {
		if s.effective.IsZero() || !r.VSphere.Contains(s.effective) {
			out = append(out, s.String())
		}
	}
	if len(out) == 0 {
		return ""
	}
	return fmt.Sprintf("needs vSphere %s, not %s", r.VSphere, strings.Join(out, ", "))
}

func (q *question) missing(r Release) string {
	if q.available != nil && !q.available[r.ReleaseID.String()] {
		return "the bundle does not hold it"
	}
	return ""
}

func (q *question) refused(r Release) string { return q.policy.Refused[r.ReleaseID.String()] }
