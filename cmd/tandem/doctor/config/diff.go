package config

import "strings"

// Diff shows what changes between two texts line by line, with two lines of context: "-" for lines that go,
// "+" for those that come.
func Diff(before, after []byte) string {
	a, b := strings.SplitAfter(string(before), "\n"), strings.SplitAfter(string(after), "\n")
	lines := script(a, b)
	const context = 2
	var out strings.Builder
	skipped := false
	for i, line := range lines {
		near := false
		for k := max(0, i-context); k <= min(len(lines)-1, i+context); k++ {
			near = near || lines[k][0] != ' '
		}
		if !near {
			skipped = true
			continue
		}
		if skipped {
			out.WriteString("@@\n")
			skipped = false
		}
		out.WriteString(line)
		if !strings.HasSuffix(line, "\n") {
			out.WriteString("\n")
		}
	}
	return out.String()
}

// script marks every line of both texts, those that they have in common once (longest common subsequence).
func script(a, b []string) []string {
	longest := make([][]int, len(a)+1)
	for i := range longest {
		longest[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for k := len(b) - 1; k >= 0; k-- {
			if a[i] == b[k] {
				longest[i][k] = longest[i+1][k+1] + 1
			} else {
				longest[i][k] = max(longest[i+1][k], longest[i][k+1])
			}
		}
	}
	var lines []string
	mark := func(sign, line string) {
		if line != "" {
			lines = append(lines, sign+line)
		}
	}
	i, k := 0, 0
	for i < len(a) || k < len(b) {
		switch {
		case i < len(a) && k < len(b) && a[i] == b[k]:
			mark(" ", a[i])
			i, k = i+1, k+1
		case k == len(b) || i < len(a) && longest[i+1][k] >= longest[i][k+1]:
			mark("-", a[i])
			i++
		default:
			mark("+", b[k])
			k++
		}
	}
	return lines
}
