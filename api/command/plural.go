package command

import "fmt"

// Plural returns a number with its noun: "1 node", "2 nodes".
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
