// Package readme reads the commands that a README shows. Tests run them word by word, and compare the shown output
// with the real one.
//
//	$ vdo-bundle verify drivers.tar --key vdo.pub     a command: it follows "$ "
//	verified   sha256:318343be2475…                   its output
//	…                                                 any omitted lines
//
// In a block without a "$ " every line is a command.
package readme

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// Block is one fenced block of a README.
type Block struct {
	File     string
	Line     int    // of the first line inside
	Section  string // the heading above it, without #
	Commands []Command
}

// Command is a command line for bash, with the output that is shown.
type Command struct {
	Line   int
	Text   string
	Output []string
}

func (c Command) String() string { return fmt.Sprintf("line %d: %s", c.Line, c.Text) }

// Blocks returns the fenced blocks of a file that hold commands: with a "$ ", or one of the programs as first word.
func Blocks(path string, programs ...string) ([]Block, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var out []Block
	var section, indent string
	var block *Block // nil outside of blocks
	var lines []string
	number := 0
	for scan := bufio.NewScanner(f); scan.Scan(); {
		line := scan.Text()
		number++
		trimmed := strings.TrimSpace(line)
		switch {
		case block == nil && strings.HasPrefix(trimmed, "```"):
			indent, _, _ = strings.Cut(line, "```")
			block, lines = &Block{File: path, Line: number + 1, Section: section}, nil
		case block != nil && strings.HasPrefix(trimmed, "```"):
			if block.read(lines, programs); len(block.Commands) > 0 {
				out = append(out, *block)
			}
			block = nil
		case block != nil:
			lines = append(lines, strings.TrimPrefix(line, indent))
		case strings.HasPrefix(line, "#"):
			section = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	return out, nil
}

// Section returns the commands below a heading of a page of the project, with kubectl or a "$ ".
func Section(t testing.TB, page, heading string) (all []Command) {
	t.Helper()
	blocks, err := Blocks(filepath.Join(toolchain.Root(), page), "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		if b.Section == heading {
			all = append(all, b.Commands...)
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s shows no commands below %q", page, heading)
	}
	return all
}

func (b *Block) read(lines []string, programs []string) {
	prompts := false
	for _, line := range lines {
		prompts = prompts || strings.HasPrefix(line, "$ ")
	}
	if !prompts && !begins(lines, programs) {
		return
	}
	for i := 0; i < len(lines); i++ {
		text, isCommand := strings.CutPrefix(lines[i], "$ ")
		at := b.Line + i
		switch {
		case isCommand || !prompts && strings.TrimSpace(lines[i]) != "" && !strings.HasPrefix(lines[i], "#"):
			for strings.HasSuffix(text, `\`) && i+1 < len(lines) {
				i++
				text = strings.TrimSuffix(text, `\`) + strings.TrimSpace(lines[i])
			}
			b.Commands = append(b.Commands, Command{Line: at, Text: text})
		case prompts && len(b.Commands) > 0:
			last := &b.Commands[len(b.Commands)-1]
			last.Output = append(last.Output, lines[i])
		}
	}
}

func begins(lines, programs []string) bool {
	for _, p := range programs {
		for _, line := range lines {
			if strings.HasPrefix(strings.TrimSpace(line), p+" ") {
				return true
			}
		}
	}
	return false
}

// varying are the parts that differ between runs.
var varying = []struct {
	pattern *regexp.Regexp
	as      string
}{
	{regexp.MustCompile(`sha256([:-])[0-9a-f]{6,64}`), "sha256${1}D"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "D"},
	{regexp.MustCompile(`(127\.0\.0\.1|localhost):\d+`), "127.0.0.1:PORT"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d(T[0-9:.]+Z)?`), "DATE"},
	{regexp.MustCompile(`vdo-bundle "[^"]*"`), "vdo-bundle VERSION"},
	{regexp.MustCompile(`\b\d+(\.\d+)? ?(B|kB|MB|GB|bytes)\b`), "SIZE"},
	{regexp.MustCompile(`\b\d+(m\d+)?s\b`), "TIME"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

// Same returns a line without the parts that differ between runs: digests, ports, dates, sizes, ages, and the width
// of columns.
func Same(line string) string {
	for _, v := range varying {
		line = v.pattern.ReplaceAllString(line, v.as)
	}
	return strings.TrimSpace(line)
}

// Holds returns an error for shown lines that are missing in the output, or for extra ones that no … stands for.
// Progress ("push: 30% (…)") and the order of lines are ignored: lines come by two streams. A command shown without
// output may have any.
func Holds(shown, got []string) error {
	if len(shown) == 0 {
		return nil
	}
	left := withoutProgress(got)
	gap := false
	for _, line := range withoutProgress(shown) {
		want := Same(line)
		if want == "…" {
			gap = true
			continue
		}
		i := slices.IndexFunc(left, func(line string) bool { return matches(want, Same(line)) })
		if i < 0 {
			return fmt.Errorf("shown, but it does not come: %q\nwhat came:\n%s", line, strings.Join(got, "\n"))
		}
		left = slices.Delete(left, i, i+1)
	}
	if len(left) > 0 && !gap {
		return fmt.Errorf("it comes, but is not shown: %q", left[0])
	}
	return nil
}

// matches compares a shown line, in which … stands for any text, with a real one.
func matches(want, got string) bool {
	parts := strings.Split(want, "…")
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(p)
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(got)
}

var progress = regexp.MustCompile(`^[a-z' ]+: (\d+% ?.*|\d+ items.*|100%)$`)

func withoutProgress(lines []string) (out []string) {
	for _, line := range lines {
		if line != "" && !progress.MatchString(line) {
			out = append(out, line)
		}
	}
	return out
}
