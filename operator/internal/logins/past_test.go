package logins

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// entered is the answer that whoever enters is given.
func entered(t *testing.T, l *Logins, q Question, at time.Time) *Known {
	t.Helper()
	known, leave, err := l.Enter(t.Context(), q, func() time.Time { return at })
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

func TestALoginOfWhichNoAnswerIsOnRecordMayHaveBeenRefused(t *testing.T) {
	l := &Logins{Past: func(context.Context) ([]Past, error) {
		return []Past{{Question: at("a"), At: begin, Open: true}}, nil
	}}
	for _, host := range []string{"a", "b"} {
		known := entered(t, l, at(host), begin.Add(20*time.Second))
		require.Equal(t, 40*time.Second, known.Wait, host)
		require.ErrorContains(t, known.Err, "was tried at a:443 at 2026-01-02T03:04:05Z, and may have been refused; it is tried here at 2026-01-02T03:05:05Z")
		require.Nil(t, entered(t, l, at(host), begin.Add(time.Minute)), host)
		require.Nil(t, entered(t, l, at(host), begin.Add(-time.Minute)), "a clock that went back")
	}
	q := at("b")
	q.Password = "other"
	require.Nil(t, entered(t, l, q, begin))
}
