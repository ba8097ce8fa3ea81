package logins

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

var refused = &fault.Error{Reason: fault.Unauthorized, Op: "log in to", Subject: "vc", Err: errors.New("refused")}

func at(host string) Question {
	return Question{Host: host, Port: 443, Username: "vdo@vsphere.local", Password: "canary", Asker: host}
}

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// One that refused waits an hour, less the tolerance of a tenth, and others ten minutes. One that lets it in, with an
// account of its own, waits only once.
func TestARefusedAccountIsNotTriedAtOtherAddressesTogether(t *testing.T) {
	var l Logins
	now, tried := begin, map[string][]int{}
	for minute := range 3 * 60 {
		now = begin.Add(time.Duration(minute) * time.Minute)
		for i, q := range []Question{at("a"), at("b"), at("c")} {
			if l.Known(q, now) == nil {
				tried[q.Host] = append(tried[q.Host], minute)
				l.Learn(q, []error{refused, nil, refused}[i], now)
			}
		}
	}
	require.Equal(t, []int{0, 54, 108, 162}, tried["a"])
	require.Equal(t, []int{9, 63, 117, 171}, tried["c"])
	require.Equal(t, 9, tried["b"][0])
	require.Len(t, tried["b"], 171, "each minute from then on")

	l.Learn(at("d"), nil, now)
	require.Nil(t, l.Known(at("d"), now))
	l.Learn(at("b"), refused, now) // its password was changed, and may have been at d
	require.NotNil(t, l.Known(at("d"), now))
}

func TestWhatIsNotTheSameLoginIsTriedAtOnce(t *testing.T) {
	var l Logins
	l.Learn(at("a"), refused, begin)
	require.Equal(t, refused, l.Known(at("a"), begin).Err)
	require.Equal(t, refused, l.Known(at("A"), begin).Err, "hosts have no case")
	require.Equal(t, refused, l.Known(at("a."), begin).Err, "nor does the root's dot make another one")
	known := l.Known(at("b"), begin.Add(time.Minute))
	require.Equal(t, 9*time.Minute, known.Wait)
	require.Equal(t, fault.Throttled, fault.ReasonOf(known.Err))
	for _, want := range []string{"refused by a:443 at 2026-01-02T03:04:05Z", "tried here at 2026-01-02T03:14:05Z"} {
		require.Contains(t, fault.Text(known.Err), want)
	}
	require.NotContains(t, fmt.Sprintf("%v %+v %#v %s", at("a"), at("a"), at("a"), fault.Text(known.Err)), "canary")

	for what, change := range map[string]func(*Question){
		"another password": func(q *Question) { q.Password = "other" },
		"another account":  func(q *Question) { q.Username = "other@vsphere.local" },
		"asked for":        func(q *Question) { q.Pass = "now" },
	} {
		for _, host := range []string{"a", "b"} {
			q := at(host)
			change(&q)
			require.Nil(t, l.Known(q, begin), "%s at %s", what, host)
		}
	}
	other := at("a")
	other.Trust = "another certificate"
	require.Nil(t, l.Known(other, begin))
	q := at("a")
	q.Pass, q.Handled = "now", "now"
	require.NotNil(t, l.Known(q, begin), "that pass was made")

	l.Learn(at("b"), &fault.Error{Reason: fault.Unreachable, Err: errors.New("away")}, begin)
	require.NotNil(t, l.Known(at("b"), begin), "one that is away says nothing")
	l.Learn(at("a"), nil, begin)
	require.Nil(t, l.Known(at("a"), begin))
	require.Nil(t, l.Known(at("a"), begin.Add(-time.Hour)), "a clock that went back")
}

func TestOneAccountIsTriedAtOneAddressAtATime(t *testing.T) {
	var l Logins
	now := func() time.Time { return begin }
	login := func(q Question, login func() error) (*Known, error) {
		return l.Login(context.Background(), q, now, login)
	}
	trying, answer := make(chan struct{}), make(chan error)
	first := make(chan error)
	go func() {
		_, err := login(at("a"), func() error { close(trying); return <-answer })
		first <- err
	}()
	<-trying
	second := make(chan *Known)
	go func() {
		known, _ := login(at("b"), func() error { return errors.New("a second login") })
		second <- known
	}()
	other := at("c")
	other.Username = "other@vsphere.local"
	require.NoError(t, must.Err(login(other, func() error { return nil })), "another account waits for nobody")
	require.Nil(t, entered(t, &l, at("b"), begin), "neither does who is on the way to the login")
	_, leave, err := l.Enter(t.Context(), at("d"), now)
	require.NoError(t, err)
	defer leave()
	require.Nil(t, entered(t, &l, at("e"), begin), "a vCenter that is silent holds up itself alone")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, must.Err(l.Login(over, at("b"), now, func() error { return nil })), context.Canceled)

	answer <- refused
	require.Equal(t, refused, <-first)
	require.Positive(t, (<-second).Wait, "it sees the refusal that it waited for")
}

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
		{"vdo@corp.example", "vdo@ad.example", false, true}, // the suffix of a principal name need not be the domain
		{"vdo@corp.example@ad.example", "vdo@corp.example", false, true},
		{"vdo", "vdo@vsphere.local", false, true}, // of the default domain, whichever that is
		{"vdo", `LOCALOS\vdo`, false, true},
		{`A\vdo`, `B\vdo`, false, true},
		{"vdo@vsphere.local", "vdo2@vsphere.local", false, false},
		{`vsphere.local\vdo`, "vsphere.local@vdo", false, false},
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

// entered is the answer that whoever enters is given.
func entered(t *testing.T, l *Logins, q Question, at time.Time) *Known {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	known, leave, err := l.Enter(ctx, q, func() time.Time { return at })
	require.NoError(t, err)
	leave()
	return known
}

func TestWhatAProcessBeforeKnewIsLearnedBeforeAnybodyIsAsked(t *testing.T) {
	read := 0
	l := &Logins{Past: func(context.Context) ([]Past, error) {
		if read++; read == 1 {
			return nil, errors.New("the API server is away")
		}
		return []Past{ // in no order
			{Question: at("d"), At: begin.Add(7 * time.Minute)},
			{Question: at("b"), At: begin.Add(6 * time.Minute), Err: refused},
			{Question: at("a"), At: begin, Err: refused},
			{Question: at("e"), At: begin}, // before a refused it, or after
		}, nil
	}}
	now := begin.Add(8 * time.Minute)
	_, _, err := l.Enter(t.Context(), at("c"), func() time.Time { return now })
	require.ErrorContains(t, err, "recall which logins were refused: the API server is away")

	require.Equal(t, 8*time.Minute, entered(t, l, at("c"), now).Wait, "ten minutes after the second refusal")
	require.Equal(t, 8*time.Minute, entered(t, l, at("e"), now).Wait)
	require.Nil(t, entered(t, l, at("d"), now), "it was let in since")
	require.Equal(t, refused, entered(t, l, at("a"), now).Err)
	asks := at("b")
	asks.Pass = "now"
	require.Nil(t, entered(t, l, asks, now))
	require.Equal(t, 2, read, "once")
}

func TestALoginWithoutAnAnswerMayHaveBeenRefused(t *testing.T) {
	before := &Logins{Past: func(context.Context) ([]Past, error) {
		return []Past{{Question: at("a"), At: begin, Err: ErrLost}}, nil
	}}
	silent := &Logins{}
	silent.Learn(at("a"), context.DeadlineExceeded, begin)
	for name, l := range map[string]*Logins{"of a process before": before, "of this one": silent} {
		for _, host := range []string{"a", "b"} {
			known := entered(t, l, at(host), begin.Add(20*time.Second))
			require.NotNil(t, known, name)
			require.Equal(t, 40*time.Second, known.Wait, host)
			require.ErrorContains(t, known.Err, "was tried at a:443 at 2026-01-02T03:04:05Z, and may have been refused; it is tried here at 2026-01-02T03:05:05Z")
			require.Nil(t, entered(t, l, at(host), begin.Add(time.Minute)), host)
			require.Nil(t, entered(t, l, at(host), begin.Add(-time.Minute)), "a clock that went back")
		}
		q := at("b")
		q.Password = "other"
		require.Nil(t, entered(t, l, q, begin))
		l.Learn(at("b"), nil, begin.Add(20*time.Second))
		require.Nil(t, entered(t, l, at("a"), begin.Add(20*time.Second)), "the password is right")
	}
}

func TestAVCenterThatHangsHoldsUpNoneThatLetItIn(t *testing.T) {
	l := &Logins{}
	for _, host := range []string{"a", "b", "c"} {
		l.Learn(at(host), nil, begin)
	}
	l.Learn(at("a"), context.DeadlineExceeded, begin)
	require.NotNil(t, entered(t, l, at("a"), begin), "itself")
	require.NotNil(t, entered(t, l, at("new"), begin))
	require.Nil(t, entered(t, l, at("b"), begin))
	l.Learn(at("b"), context.DeadlineExceeded, begin)
	require.NotNil(t, entered(t, l, at("c"), begin), "two hang")

	l.Learn(at("a"), nil, begin)
	l.Learn(at("b"), nil, begin)
	l.Learn(at("c"), refused, begin)
	l.Learn(at("b"), context.DeadlineExceeded, begin.Add(time.Hour))
	require.NotNil(t, entered(t, l, at("a"), begin.Add(time.Hour)), "the password may have been changed")
}
