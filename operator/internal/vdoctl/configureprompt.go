package vdoctl

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// question is what is asked on a terminal.
type question struct {
	title, help, value string // value is what Enter alone takes
	secret             bool
	valid              func(string) error
}

// prompter asks a person.
type prompter interface {
	ask(ctx context.Context, q question) (string, error)
}

// noAnswer is typed for none, where Enter alone takes what is offered.
const noAnswer = "-"

// terminalPrompts asks line by line, as the questions for passwords and consent do. Nothing is
// asked of the terminal itself: who draws forms asks it for its colours first, and waits where
// none are told.
type terminalPrompts struct{ *app }

// ask asks until the answer is one.
func (t *terminalPrompts) ask(ctx context.Context, q question) (string, error) {
	t.say("")
	if q.help != "" {
		t.say("  " + q.help)
	}
	prompt := q.title + ": "
	if q.value != "" {
		prompt = q.title + " [" + q.value + "]: "
	}
	for {
		_, _ = io.WriteString(t.err, command.Printable(prompt))
		answer, err := t.read(ctx, q)
		if err != nil {
			return "", err
		}
		if q.valid != nil {
			err = q.valid(answer)
		}
		if err == nil {
			return answer, nil
		}
		t.say("  * " + inOneLine(err))
	}
}

// read reads an answer, or takes what is offered. A terminal that is closed, or Ctrl-D, ends
// it as Ctrl-C does.
func (t *terminalPrompts) read(ctx context.Context, q question) (answer string, err error) {
	if q.secret {
		var hidden []byte
		hidden, err = t.hiddenLine(ctx)
		answer = string(hidden)
		t.say("")
	} else {
		answer, err = t.line(ctx)
		answer = strings.TrimSpace(answer)
	}
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil && answer == "":
		t.say("")
		return "", &fault.Error{Reason: fault.Interrupted, Op: "interrupted", Err: errors.New("nothing was changed"), Hint: "run the same command again"}
	case answer == noAnswer && !q.secret:
		return "", nil
	}
	return cmp.Or(answer, q.value), nil
}

func (t *terminalPrompts) say(text string) { _ = command.Say(t.err, "%s", text) }

// inOneLine is what is wrong with an answer.
func inOneLine(err error) string {
	var f *fault.Error
	if errors.As(err, &f) && f.Err != nil {
		err = f.Err
	}
	return cut(err.Error(), maxAnswer)
}

// maxAnswer is how much is said of a wrong answer, in letters.
const maxAnswer = 200
