package command

import (
	"bufio"
	"context"
	"errors"
	"os"

	"golang.org/x/term"
)

// ReadLine reads a line of a terminal. It does not echo a hidden line. A signal ends the wait and restores the
// terminal.
func ReadLine(ctx context.Context, in *os.File, hidden bool) (string, error) {
	terminal := int(in.Fd())
	before, err := term.GetState(terminal)
	if err != nil {
		return "", err
	}
	line, err := Within(ctx, func() (string, error) {
		if hidden {
			password, err := term.ReadPassword(terminal)
			return string(password), err
		}
		return bufio.NewReader(in).ReadString('\n')
	})
	if ctx.Err() != nil {
		err = errors.Join(err, term.Restore(terminal, before))
	}
	return line, err
}

// Within returns the result of read, or the cause when ctx ends. A read from a terminal or pipe cannot be cancelled;
// Within abandons it.
func Within[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type answer struct {
		data T
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		data, err := read()
		done <- answer{data, err}
	}()
	select {
	case got := <-done:
		return got.data, got.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
