package world

import (
	"encoding/json"
	"io"
	"os"
)

// Serve tells the parent process, in one line of JSON, what is being served, and
// returns when the parent closes standard input or ends, however it ends.
func Serve(facts any) error {
	if err := json.NewEncoder(os.Stdout).Encode(facts); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}
