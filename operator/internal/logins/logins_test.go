package logins

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

func TestALaneHoldsOne(t *testing.T) {
	var l lanes
	leave, err := l.enter(t.Context(), "a")
	require.NoError(t, err)

	other, err := l.enter(t.Context(), "b")
	require.NoError(t, err)
	other()

	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.enter(over, "a")
	require.ErrorIs(t, err, context.Canceled)

	entered := make(chan error)
	go func() {
		leave, err := l.enter(t.Context(), "a")
		if err == nil {
			leave()
		}
		entered <- err
	}()
	leave()
	require.NoError(t, <-entered)
	require.Empty(t, l.busy)
}

var refused = &fault.Error{Reason: fault.Unauthorized, Op: "log in to", Subject: "vc", Err: errors.New("refused")}

func at(host string) Question {
	return Question{Host: host, Port: 443, Username: "vdo@vsphere.local", Password: "canary", Asker: host}
}

// domain plays vCenters of one SSO domain that are asked each minute, and keeps when a
// login was tried.
type domain struct {
	l     Logins
	now   time.Time
	tried map[string][]int // minutes, by host
	all   []int
}

func (d *domain) ask(q Question, answer error) {
	if d.l.Known(q, d.now) != nil {
		return
	}
	minute := int(d.now.Sub(begin).Minutes())
	d.tried[q.Host] = append(d.tried[q.Host], minute)
	d.all = append(d.all, minute)
	d.l.Learn(q, answer, d.now)
}

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestARefusedAccountIsNotTriedAtOtherAddressesTogether(t *testing.T) {
	d := &domain{now: begin, tried: map[string][]int{}}
	hosts := []string{"a", "b", "c", "d", "e"}
	for range 6 * 60 {
		for _, h := range hosts {
			d.ask(at(h), refused)
		}
		d.now = d.now.Add(time.Minute)
	}
	require.Equal(t, 0, d.tried["a"][0])
	require.Equal(t, 5, d.tried["b"][0], "five minutes after the first refusal")
	require.Equal(t, 14, d.tried["c"][0], "ten minutes later, less the tolerance of waits")
	require.Equal(t, 32, d.tried["d"][0])
	for _, h := range hosts {
		require.NotEmpty(t, d.tried[h], "each is tried in the end")
		for i, m := range d.tried[h][1:] {
			require.GreaterOrEqual(t, m-d.tried[h][i], 54, "the hour of one that refused")
		}
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
}

// Where the vCenters have accounts of their own which are called the same, the one that
// refuses holds up no other for longer than once.
func TestAnAddressThatLetItInIsNotDelayed(t *testing.T) {
	d := &domain{now: begin, tried: map[string][]int{}}
	for range 3 * 60 {
		d.ask(at("a"), refused)
		d.ask(at("b"), nil)
		d.now = d.now.Add(time.Minute)
	}
	require.Len(t, d.tried["a"], 4)
	require.Equal(t, 5, d.tried["b"][0])
	require.Len(t, d.tried["b"], 175, "each minute from then on")

	d.ask(at("c"), nil)
	require.Nil(t, d.l.Known(at("c"), d.now))
	d.ask(at("b"), refused) // its password was changed, and may have been at c
	require.NotNil(t, d.l.Known(at("c"), d.now))
}

func TestWhatIsNotTheSameLoginIsTriedAtOnce(t *testing.T) {
	var l Logins
	l.Learn(at("a"), refused, begin)
	require.Equal(t, refused, l.Known(at("a"), begin).Err)
	require.Equal(t, refused, l.Known(at("A"), begin).Err, "hosts have no case")
	require.Equal(t, refused, l.Known(at("a."), begin).Err, "nor does the root's dot make another one")
	known := l.Known(at("b"), begin.Add(time.Minute))
	require.Equal(t, 4*time.Minute, known.Wait)
	require.Equal(t, fault.Throttled, fault.ReasonOf(known.Err))
	for _, want := range []string{"refused by a:443 at 2026-01-02T03:04:05Z", "tried here at 2026-01-02T03:09:05Z"} {
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
	_, err := login(other, func() error { return nil })
	require.NoError(t, err, "another account waits for nobody")
	known, leave, err := l.Enter(t.Context(), at("b"), now)
	require.NoError(t, err, "neither does who is on the way to the login")
	require.Nil(t, known)
	leave()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.Login(over, at("b"), now, func() error { return nil })
	require.ErrorIs(t, err, context.Canceled)

	answer <- refused
	require.Equal(t, refused, <-first)
	require.Positive(t, (<-second).Wait, "it sees the refusal that it waited for")
	require.Empty(t, l.lanes.busy)
}
