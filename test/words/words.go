// Package words checks the prose of the project: docs, messages, alerts, dashboards and commits.
//
// A sentence has at most 25 words and no banned one, and does not start with What, That, Of or Where. Code, headings
// and link targets are not checked; a code span counts as one word. A commit subject has the form "area: verb
// object". A message cites no path in the repository, which a site may not have.
package words

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxWords   = 25 // of a sentence
	maxHelp    = 60 // characters of a command's short help
	maxSubject = 72 // characters of a commit subject
)

var (
	banned = regexp.MustCompile(`(?i)\b(anew|mend(s|ed|ing)?|fare[sd]?|amiss|be it|asked for|in force|somebody|nobody|no more|` +
		`tak(e|es|ing|en) up|took up|lead(s|ing)? to|led to|of now|as it is|what is [^.,;:]*? is)\b`)
	badStart = regexp.MustCompile(`^\W*(What|That|Of|Where)\b`)
	end      = regexp.MustCompile(`[.!?][)"'”*_]*$`)
	abbrev   = regexp.MustCompile(`(?i)^\W*(e\.g|i\.e|cf|vs)\.$`)
	word     = regexp.MustCompile(`[\pL\pN…]`)
	link     = regexp.MustCompile(`\[([^]]*)\](\([^)]*\)|\[[^]]*\])`)
	span     = regexp.MustCompile("`[^`]*`")
	item     = regexp.MustCompile(`^([-*+]|\d+[.)]) +`)
	ruler    = regexp.MustCompile(`^[-:| ]+$`) // below the header of a table
	indented = regexp.MustCompile(`(?m)^([ \t]|\+\w|#).*$`)
	message  = regexp.MustCompile(`(\S*[\pL…]\S*\s+){3}\S*[\pL…]`) // a string of four words
	inRepo   = regexp.MustCompile(`\bdeploy/(crds|docs|samples|sip|README|[\w-]+\.yaml)\b`)
	value    = regexp.MustCompile(`\{\{[^}]*\}\}`)
	shipped  = regexp.MustCompile(`^\s*(- )?"?(summary|description|message)"?: ["']?(.*?)["']?,?$`)
	subject  = regexp.MustCompile(`^[a-z0-9/.,_ -]+: [a-z]`)
)

// Finding is a text that breaks a rule.
type Finding struct {
	Rule, Text string
	Line       int
}

// Prose checks one paragraph that starts at a line.
func Prose(text string, line int) (found []Finding) {
	for _, s := range sentences(text, line) {
		plain := strings.ReplaceAll(s.text, "no more than", "")
		for range banned.FindAllString(plain, -1) {
			found = append(found, Finding{"banned-word", s.text, s.line})
		}
		if s.words > maxWords {
			found = append(found, Finding{"long-sentence", s.text, s.line})
		}
		if badStart.MatchString(s.text) {
			found = append(found, Finding{"sentence-start", s.text, s.line})
		}
	}
	return found
}

type sentence struct {
	text        string
	line, words int
}

// sentences splits a paragraph. A sentence ends at a full stop, unless a lower-case word follows that is not the name
// of a program.
func sentences(text string, line int) (all []sentence) {
	text = span.ReplaceAllStringFunc(link.ReplaceAllString(text, "$1"), func(s string) string {
		return "`…`" + strings.Repeat("\n", strings.Count(s, "\n"))
	})
	ended := true
	for i, l := range strings.Split(text, "\n") {
		for _, w := range strings.Fields(l) {
			first, _ := utf8.DecodeRuneInString(strings.TrimLeft(w, `("'“*_`))
			if len(all) == 0 || ended && (!unicode.IsLower(first) || strings.HasPrefix(w, "vdo")) {
				all = append(all, sentence{line: line + i})
			}
			s := &all[len(all)-1]
			s.text = strings.TrimSpace(s.text + " " + w)
			if word.MatchString(w) {
				s.words++
			}
			ended = end.MatchString(w) && !abbrev.MatchString(w)
		}
	}
	return all
}

// Markdown checks a page.
func Markdown(page string) (found []Finding) {
	lines := strings.Split(page, "\n")
	var paragraph []string
	flush := func(next int) {
		found = append(found, Prose(strings.Join(paragraph, "\n"), next-len(paragraph)+1)...)
		paragraph = nil
	}
	inCode := false
	for i, line := range lines {
		line = strings.TrimLeft(line, " >")
		isFence := strings.HasPrefix(line, "```") || strings.HasPrefix(line, "~~~")
		switch {
		case isFence || inCode || line == "" || line[0] == '#':
			flush(i)
			inCode = inCode != isFence
		case line[0] == '|':
			flush(i)
			if i+1 < len(lines) && ruler.MatchString(lines[i+1]) {
				continue // column titles
			}
			for cell := range strings.SplitSeq(span.ReplaceAllString(line, "`…`"), "|") {
				found = append(found, Prose(cell, i+1)...)
			}
		default:
			if item.MatchString(line) {
				flush(i)
			}
			paragraph = append(paragraph, item.ReplaceAllString(line, ""))
		}
	}
	flush(len(lines))
	return found
}

// Shipped checks the texts of alerts, dashboards and policies, which have one line each. A value counts as one word.
func Shipped(file string) (found []Finding) {
	for i, line := range strings.Split(file, "\n") {
		if m := shipped.FindStringSubmatch(line); m != nil {
			found = append(found, Prose(value.ReplaceAllString(m[3], "…"), i+1)...)
		}
	}
	return found
}

// Go checks the comments of a source file, its strings of four words or more, and the short help.
func Go(src string) (found []Finding, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", src, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return nil, err
	}
	// An indented line is an example. It ends a paragraph, like an empty line, a heading and a marker.
	prose := func(text string, at token.Pos) {
		for p := range strings.SplitSeq(indented.ReplaceAllString(text, ""), "\n\n") {
			found = append(found, Prose(strings.ReplaceAll(p, "\n", " "), set.Position(at).Line)...)
		}
	}
	for _, c := range file.Comments {
		prose(c.Text(), c.Pos())
	}
	var visit func(ast.Node) bool
	// text joins the parts of a sum. "…" stands for a value.
	var text func(e ast.Expr) (s string, isText bool)
	text = func(e ast.Expr) (string, bool) {
		if lit, ok := e.(*ast.BasicLit); ok {
			s, err := strconv.Unquote(lit.Value)
			return s, err == nil && lit.Kind == token.STRING
		}
		if sum, ok := e.(*ast.BinaryExpr); ok && sum.Op == token.ADD {
			x, isText := text(sum.X)
			y, also := text(sum.Y)
			return x + y, isText || also
		}
		ast.Inspect(e, visit)
		return "…", false
	}
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			key, isName := n.Key.(*ast.Ident)
			help, isText := n.Value.(*ast.BasicLit)
			if isName && isText && key.Name == "Short" && utf8.RuneCountInString(help.Value)-len(`""`) > maxHelp {
				found = append(found, Finding{"long-help", help.Value, set.Position(n.Pos()).Line})
			}
		case *ast.BasicLit, *ast.BinaryExpr:
			if b, ok := n.(*ast.BinaryExpr); ok && b.Op != token.ADD {
				return true
			}
			if s, isText := text(n.(ast.Expr)); isText && message.MatchString(s) {
				if inRepo.MatchString(s) {
					found = append(found, Finding{"repository-path", s, set.Position(n.Pos()).Line})
				}
				prose(s, n.Pos())
			}
			return false
		}
		return true
	}
	ast.Inspect(file, visit)
	return found, nil
}

// IsSubject reports whether a text has the form of a commit's first line.
func IsSubject(s string) bool {
	return subject.MatchString(s) && utf8.RuneCountInString(s) <= maxSubject && !strings.HasSuffix(s, ".")
}
