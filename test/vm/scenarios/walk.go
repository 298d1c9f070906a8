// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/cluster"
	"github.com/tandem-k8s/tandem/test/vm/host"
)

//go:embed walk.txt
var walkText string

// Markers of the commands in walk.txt.
const (
	documented = '$' // in the documents
	beside     = '+' // on the machine with kubectl
	onNode     = '@'
)

// walkStep is a command of walk.txt.
type walkStep struct {
	marker  rune
	command string
	exit    int
	prints  []string
}

// walkBlock is a block of related commands.
type walkBlock []walkStep

// parseWalk reads the parts of walk.txt by their names.
func parseWalk(text string) (map[string][]walkBlock, error) {
	parts := map[string][]walkBlock{}
	part := ""
	var block walkBlock
	for line := range strings.Lines(text + "\n") {
		line = strings.TrimRight(line, "\n")
		indented, isBelow := strings.CutPrefix(line, "  ")
		code, isExit := strings.CutPrefix(indented, "exit ")
		name, isPart := strings.CutPrefix(line, "== ")
		switch {
		case strings.HasPrefix(line, "#"):
		case line == "" || isPart:
			if len(block) > 0 {
				parts[part] = append(parts[part], block)
			}
			block = nil
			if isPart {
				part = name
			}
		case isBelow && isExit && len(block) > 0:
			exit, err := strconv.Atoi(code)
			if err != nil {
				return nil, fmt.Errorf("walk.txt: %q: %w", line, err)
			}
			block[len(block)-1].exit = exit
		case isBelow && len(block) > 0:
			block[len(block)-1].prints = append(block[len(block)-1].prints, indented)
		case part != "" && len(line) > 2 && strings.ContainsRune("$+@", rune(line[0])) && line[1] == ' ':
			block = append(block, walkStep{marker: rune(line[0]), command: line[2:]})
		default:
			return nil, fmt.Errorf("walk.txt: what is %q?", line)
		}
	}
	return parts, nil
}

// walk runs one part of the walk, and adds a row for every command of the documents.
func (t *tester) walk(ctx context.Context, part string) error {
	parts, err := parseWalk(walkText)
	if err != nil {
		return err
	}
	if err := t.layOutUser(); err != nil {
		return err
	}
	for _, block := range parts[part] {
		if err := t.walkBlock(ctx, block); err != nil {
			return err
		}
	}
	return nil
}

// walkBlock runs a block, and repeats it after a failure with a late answer.
func (t *tester) walkBlock(ctx context.Context, block walkBlock) error {
	var rows []Row
	late, err := t.unlessLate(ctx, "", block[0].command, func() (good bool, err error) {
		rows, good, err = t.goThrough(ctx, block)
		return good, err
	})
	if err != nil {
		return err
	}
	for _, r := range rows {
		r.note = join(r.note, lateNote(late))
		t.add(r)
	}
	return nil
}

// goThrough stops at the first problem.
func (t *tester) goThrough(ctx context.Context, block walkBlock) (rows []Row, good bool, err error) {
	for _, s := range block {
		start := time.Now()
		printed, problem, err := t.walkStep(ctx, s)
		if err != nil {
			return nil, false, err
		}
		if s.marker == documented || problem != "" {
			rows = append(rows, Row{
				Setup: t.node.Title() + ": the documents", Scenario: s.command, Problem: problem,
				took: time.Since(start), note: lastLine(printed),
			})
		}
		if problem != "" {
			return rows, false, nil
		}
	}
	return rows, true, nil
}

// blanks fills in the documents' placeholders for a shell, and longer timeouts for the slow emulated node.
var blanks = strings.NewReplacer(
	"kubectl tandem ", "kubectl tandem --timeout=2m ",
	" TANDEM_GPU_POD ", " ds/tandem-gpu ",
	" OLD ", " stock ",
	"OLD_POD", "-l app=stock",
	"NODE...", cluster.NodeName,
	"NODE", cluster.NodeName,
	" POD ", ` $(kubectl -n kube-system get pod -l app.kubernetes.io/name=tandem-gpu -o name) `,
	"pod NAME", `pod $(kubectl get pod -o jsonpath='{.items[0].metadata.name}')`,
)

// walkStep runs one command and returns a problem with its end.
func (t *tester) walkStep(ctx context.Context, s walkStep) (printed, problem string, err error) {
	script := "{ " + blanks.Replace(s.command) + "\n} 2>&1; code=$?; echo; echo $code"
	if s.marker == onNode || strings.HasPrefix(s.command, "tandem ") {
		printed, err = t.node.Run(ctx, seesIdentity+script+"\nEND\n")
	} else {
		printed, err = t.asUser(ctx, script)
	}
	if err != nil {
		return "", "", err
	}
	code := lastLine(printed)
	printed = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(printed), code))
	if err := t.keep(s.command, printed); err != nil {
		return "", "", err
	}
	if code != strconv.Itoa(s.exit) {
		return printed, fmt.Sprintf("exit code %s, want %d: %s", code, s.exit, host.Tail(printed, 300)), nil
	}
	for _, want := range s.prints {
		if !strings.Contains(printed, want) {
			return printed, fmt.Sprintf("it does not print %q: %s", want, host.Tail(printed, 300)), nil
		}
	}
	return printed, "", nil
}

// seesIdentity runs the rest of a script with the containers' /sys.
const seesIdentity = "exec unshare -m sh <<'END'\nmount --rbind /run/sysroot /sys\n"

// keep appends a command's complete output to a file.
func (t *tester) keep(command, printed string) error {
	file, err := os.OpenFile(t.Path("run/walk.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "$ %s\n%s\n\n", command, printed)
	return errors.Join(err, file.Close())
}
