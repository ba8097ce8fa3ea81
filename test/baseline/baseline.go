// Package baseline keeps the known findings of a check in a list that may only shrink.
//
// The list is a committed text file, sorted. Each line holds a key and a number, separated by a
// tab. The key is a file, or a file and a rule separated by a tab:
//
//	operator/README.md	long-sentence	112
//
// More findings than listed fail the test, and so do fewer: the author lowers the number with UPDATE=1. A rewrite
// never raises a number. A new file may inherit the findings of others, for renamed and split files, as long as the
// rule's total does not grow.
package baseline

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Found holds the findings by key. Each finding is a line for the author: where and what.
type Found map[string][]string

// Check compares findings with the list at path, or rewrites the list if UPDATE=1.
func Check(t *testing.T, path string, found Found) {
	t.Helper()
	data, err := os.ReadFile(path)
	isNew := errors.Is(err, fs.ErrNotExist)
	if err != nil && !isNew {
		t.Fatal(err)
	}
	listed, err := parse(string(data))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if os.Getenv("UPDATE") == "" {
		dir, _ := os.Getwd()
		update := fmt.Sprintf("UPDATE=1 go test -run '^%s$' ./test/%s", t.Name(), filepath.Base(dir))
		for _, problem := range compare(listed, found, update) {
			t.Error(problem)
		}
		return
	}
	list, refused := rewrite(listed, found, isNew)
	for _, key := range refused {
		t.Errorf("refused to raise %s from %d to %d", key, listed[key], len(found[key]))
	}
	if err := os.WriteFile(path, []byte(format(list)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// compare returns what differs from the list: a problem for each key with too many findings, and
// one for all keys with too few.
func compare(listed map[string]int, found Found, update string) (problems []string) {
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if n := len(found[key]); n > listed[key] {
			problems = append(problems, fmt.Sprintf("%s: %d findings, at most %d allowed; fix the new ones:\n%s",
				key, n, listed[key], strings.Join(found[key], "\n")))
		}
	}
	var fewer []string
	for _, key := range slices.Sorted(maps.Keys(listed)) {
		if n := len(found[key]); n < listed[key] {
			fewer = append(fewer, fmt.Sprintf("%s: %d findings, %d listed", key, n, listed[key]))
		}
	}
	if fewer != nil {
		problems = append(problems, strings.Join(fewer, "\n")+"\nlower the numbers: "+update)
	}
	return problems
}

// rewrite returns the new list, and the keys whose numbers would have to rise.
func rewrite(listed map[string]int, found Found, isNew bool) (list map[string]int, refused []string) {
	list = map[string]int{}
	total := map[string]int{} // by rule: positive where findings were added
	for key, n := range listed {
		total[rule(key)] -= n
	}
	for key, places := range found {
		total[rule(key)] += len(places)
	}
	for key, places := range found {
		old, known := listed[key]
		if list[key] = len(places); list[key] > old && !isNew && (known || total[rule(key)] > 0) {
			list[key] = old
			refused = append(refused, key)
		}
	}
	slices.Sort(refused)
	return list, refused
}

// rule returns the key without its file.
func rule(key string) string {
	_, rule, _ := strings.Cut(key, "\t")
	return rule
}

func parse(text string) (map[string]int, error) {
	listed := map[string]int{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		tab := strings.LastIndex(line, "\t")
		n, err := strconv.Atoi(line[tab+1:])
		if tab < 1 || err != nil || n < 1 {
			return nil, fmt.Errorf("expected a key, a tab and a number, got %q", line)
		}
		listed[line[:tab]] = n
	}
	return listed, nil
}

func format(list map[string]int) string {
	var out strings.Builder
	for _, key := range slices.Sorted(maps.Keys(list)) {
		if list[key] > 0 {
			fmt.Fprintf(&out, "%s\t%d\n", key, list[key])
		}
	}
	return out.String()
}
