package natstest

import "strings"

// SubjectMatches says whether a subject without wildcards is covered by a
// pattern that may have * and >.
func SubjectMatches(pattern, subject string) bool {
	for {
		want, morePattern, patternGoesOn := strings.Cut(pattern, ".")
		have, moreSubject, subjectGoesOn := strings.Cut(subject, ".")
		switch {
		case want == ">" && !patternGoesOn:
			return true
		case want != "*" && want != have:
			return false
		case patternGoesOn != subjectGoesOn:
			// "a.>" needs at least one token after "a".
			return false
		case !patternGoesOn:
			return true
		}
		pattern, subject = morePattern, moreSubject
	}
}
