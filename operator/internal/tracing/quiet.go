package tracing

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// The libraries print what they find wrong, with the values of their variables, which hold
// logins, and with what the collector answered, which may repeat them. Neither is printed.

// complaints are what a library finds wrong, in its fixed words: it is a log, without the
// values and errors that come with them.
type complaints struct {
	mu  sync.Mutex
	all []string
}

func (*complaints) Init(logr.RuntimeInfo)            {}
func (*complaints) Enabled(int) bool                 { return false }
func (*complaints) Info(int, string, ...any)         {}
func (c *complaints) WithValues(...any) logr.LogSink { return c }
func (c *complaints) WithName(string) logr.LogSink   { return c }
func (c *complaints) Error(_ error, msg string, _ ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.all, msg) {
		c.all = append(c.all, msg)
	}
}

// err says what was found wrong until now, nil for nothing.
func (c *complaints) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) == 0 {
		return nil
	}
	return errors.New("the variables OTEL_EXPORTER_OTLP_… are not right: " + strings.Join(c.all, "; "))
}

// repeated is how often it is told that spans cannot be sent, as long as that is so.
const repeated = time.Hour

// unsent tells now and then that spans cannot be sent.
type unsent struct {
	log  logr.Logger
	mu   sync.Mutex
	last time.Time
}

// Handle tells of an error, but for its text.
func (u *unsent) Handle(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if now := time.Now(); u.last.IsZero() || now.Sub(u.last) >= repeated {
		u.last = now
		u.log.Info("spans are dropped: the collector does not take them", "why", why(err))
	}
}

// answered finds the status in what the exporter says of an answer.
var answered = regexp.MustCompile(`: ([1-5][0-9]{2}) `)

func why(err error) string {
	text, _, _ := strings.Cut(err.Error(), "(body:")
	if found := answered.FindStringSubmatch(text); found != nil {
		return "it answers " + found[1]
	}
	return "it does not answer, or asks to be left alone"
}
