// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Mistake is a row of the table of wrong pools: a pool of config.json, and what happens. Text that a program
// prints is without backquotes.
type Mistake struct {
	Pool  string
	Helm  string // the error of helm; "-" for none
	Exit  string // the exit code of tandem-rdma, "runs" for none
	Log   string // part of the daemon's log
	Ready string // the status of /readyz
	Node  string // the number of devices for the kubelet
}

// pageOfMistakes has the table.
const pageOfMistakes = "docs/troubleshoot.md"

var mistake = regexp.MustCompile("(?m)^\\| [^|]+ \\| `(\\{\"resourceName\"[^|]*)` \\| ([^|]*) \\| ([^|]*) \\| " +
	"`([^|]*)` \\| ([^|]*) \\| ([^|]*) \\|$")

// Mistakes returns the table of wrong pools of a repository.
func Mistakes(root string) ([]Mistake, error) {
	content, err := os.ReadFile(filepath.Join(root, pageOfMistakes))
	if err != nil {
		return nil, err
	}
	var all []Mistake
	for _, row := range mistake.FindAllStringSubmatch(string(content), -1) {
		exit, _, _ := strings.Cut(row[3], ",")
		node, _, _ := strings.Cut(row[6], ",")
		all = append(all, Mistake{row[1], strings.Trim(row[2], "`"), exit, row[4], row[5], node})
	}
	if len(all) < 6 {
		return nil, fmt.Errorf("%s: found only the mistakes %q", pageOfMistakes, all)
	}
	return all, nil
}

// Config returns a configuration with the wrong pool alone.
func (m Mistake) Config() string { return `{"resourceList": [` + m.Pool + `]}` }
