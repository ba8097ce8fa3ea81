package assess

import (
	"encoding/json"
	"regexp"
	"strings"
)

// A terminated container leaves a termination message, which the drivers do not write, or the end of its log. A
// finding quotes its most specific line. It omits details of the attempt (times, process numbers, memory addresses,
// trace ids), so that the text stays stable, and possible secrets: see secrets.go.

// AddLastWords stores the end of the log of a workload's crashing container.
func (o *Observed) AddLastWords(w Workload, container, log string) {
	if o.LastWords == nil {
		o.LastWords = map[string]string{}
	}
	o.LastWords[wordsKey(w, container)] = log
}

func wordsKey(w Workload, container string) string { return w.String() + "\x00" + container }

var (
	klogHead = regexp.MustCompile(`^([IWEF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [^\]\s]+\] `)
	times    = regexp.MustCompile(`\b\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?`)
	pointers = regexp.MustCompile(`\b0x[0-9a-f]{4,}\b`)
)

// tellingLine returns the most specific line: the last with a known sign, else the last fatal one, else the last
// error, else the last. It skips lines that continue one which announces a secret.
func tellingLine(text string) string {
	best, rank := "", -1
	announced, key := false, false
	for raw := range strings.Lines(strings.ToValidUTF8(text, "\uFFFD")) {
		line, gravity := logLine(strings.TrimSpace(raw))
		if line == "" {
			continue
		}
		continues := announced || key
		announced = announces(line)
		key = strings.Contains(line, "-----BEGIN ") || key && !strings.Contains(line, "-----END ")
		if signOf(line) != nil {
			gravity = 3
		}
		if !continues && gravity >= rank {
			best, rank = line, gravity
		}
	}
	return withoutSecrets(stable(best))
}

// logLine returns the message of a log line, and its gravity: 2 for a fatal one, 1 for an error, 0 for others.
func logLine(line string) (says string, gravity int) {
	if says, level, ok := jsonLine(line); ok {
		return says, levels[level]
	}
	if head := klogHead.FindStringSubmatch(line); head != nil {
		return line[len(head[0]):], levels[head[1]]
	}
	if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
		gravity = 2
	}
	return line, gravity
}

var levels = map[string]int{"F": 2, "fatal": 2, "panic": 2, "E": 1, "error": 1}

// jsonLine reads a line of a structured logger.
func jsonLine(line string) (says, level string, ok bool) {
	if !strings.HasPrefix(line, "{") {
		return "", "", false
	}
	var entry struct{ Level, Msg, Message, Error, Err string }
	if err := json.Unmarshal([]byte(line), &entry); err != nil {
		return "", "", false
	}
	says = entry.Msg + entry.Message
	if why := entry.Error + entry.Err; why != "" && !strings.Contains(says, why) {
		says += ": " + why
	}
	return says, strings.ToLower(entry.Level), says != ""
}

// With thousands of pods speed matters: patterns run only on texts that may match.

// stable removes times and memory addresses, which differ between attempts.
func stable(s string) string {
	if strings.Count(s, ":") > 1 {
		s = times.ReplaceAllString(s, "")
	}
	if strings.Contains(s, "0x") {
		s = pointers.ReplaceAllString(s, "")
	}
	return strings.TrimSpace(s)
}
