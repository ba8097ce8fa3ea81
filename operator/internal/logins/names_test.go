package logins

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNamesThatMayBeOfOneAccount(t *testing.T) {
	for _, c := range []struct {
		a, b           string
		login, account bool // one of the same
	}{
		{"vdo@vsphere.local", "vdo@vsphere.local", true, true},
		{"vdo@vsphere.local", "VDO@VSPHERE.LOCAL", true, true},
		{"vdo@vsphere.local", `VSPHERE.LOCAL\vdo`, true, true},
		{"Vdo@Corp", `corp\VDO`, true, true},
		{"vdo@corp.example", `CORP\vdo`, false, true},       // most often one, but the short name is chosen
		{"vdo@ad.corp.example", `MAIN\vdo`, false, true},    // a short name of its own
		{"vdo@corp.example", "vdo@ad.example", false, true}, // the suffix of a principal name need not be the domain
		{"vdo@corp.example@ad.example", "vdo@corp.example", false, true},
		{"vdo", "vdo@vsphere.local", false, true}, // of the default domain, whichever that is
		{"vdo", `LOCALOS\vdo`, false, true},
		{`A\vdo`, `B\vdo`, false, true},
		{"vdo@vsphere.local", "vdo2@vsphere.local", false, false},
		{`vsphere.local\vdo`, "vsphere.local@vdo", false, false},
		{"vdo", "other", false, false},
		{"", "vdo", false, false},
	} {
		var l Logins
		a, b := Question{Host: "vc", Username: c.a, Password: "x"}, Question{Host: "VC", Username: c.b, Password: "x"}
		require.Equal(t, c.login, l.login(a) == l.login(b), "login as %s and %s", c.a, c.b)
		require.Equal(t, c.account, l.account(a) == l.account(b), "account of %s and %s", c.a, c.b)
		b.Password = "y"
		require.NotEqual(t, l.login(a), l.login(b))
		require.NotEqual(t, l.account(a), l.account(b))
	}
}

// Five vCenters of one domain, each with a Secret of its own that has the account in another
// notation, and one vCenter that is named twice.
func TestNotationsOfOneAccountAddNoFailedLogins(t *testing.T) {
	d := &domain{now: begin, tried: map[string][]int{}}
	var asked []Question
	for i, name := range []string{"vdo@corp.example", `CORP\vdo`, "VDO@corp.example", "vdo", `corp.example\Vdo`} {
		q := at(string(rune('a' + i)))
		q.Username = name
		asked = append(asked, q)
	}
	again := asked[0]
	again.Username, again.Asker = `CORP\vdo`, "another resource"
	asked = append(asked, again)
	for range 6 * 60 {
		for _, q := range asked {
			d.ask(q, refused)
		}
		d.now = d.now.Add(time.Minute)
	}
	for _, m := range d.all {
		near := 0
		for _, n := range d.all {
			if n >= m && n < m+3 {
				near++
			}
		}
		require.LessOrEqual(t, near, 2, "failures within three minutes, of the five that lock: %v", d.all)
	}
	for _, q := range asked {
		require.NotEmpty(t, d.tried[q.Host], "each is tried in the end")
	}
}

// Who mistyped the domain does not wait for the correction to be tried, and neither does
// anybody else once it is let in.
func TestANameThatAPersonCorrectsIsTried(t *testing.T) {
	var l Logins
	wrong, right := at("a"), at("a")
	wrong.Username = "vdo@vsphere.loca"
	l.Learn(wrong, refused, begin)
	require.NotNil(t, l.Known(wrong, begin))
	require.Nil(t, l.Known(right, begin))
	other := right
	other.Asker = "another resource"
	require.Positive(t, l.Known(other, begin).Wait, "it may be the same account")
	require.Positive(t, l.Known(at("b"), begin).Wait)

	l.Learn(right, refused, begin)
	require.NotNil(t, l.Known(right, begin))
	third := right
	third.Username = "vdo@corp.example"
	require.Nil(t, l.Known(third, begin))

	l.Learn(third, nil, begin)
	for _, q := range []Question{third, other, at("b")} {
		q.Username = third.Username
		require.Nil(t, l.Known(q, begin), "nobody refuses it any more")
	}
	require.NotNil(t, l.Known(right, begin), "what was refused is not tried again")
}
