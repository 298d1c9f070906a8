// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// selection is the result of a config.json on the machine.
type selection struct {
	file    string
	notes   []string // ignored settings, and devices that the machine lacks
	choices []pools.Choice
}

func newSelection(n *machine.Node, file string, from *machine.Source, notes []string) (selection, error) {
	choices, err := n.Choices(file, from)
	return selection{file, notes, choices}, err
}

// text returns the selection for people, empty if every device is selected.
func (s *selection) text() []byte {
	var out bytes.Buffer
	for _, note := range s.notes {
		fmt.Fprintf(&out, "  note  %s\n", note)
	}
	for _, c := range s.choices {
		if c.Rejected > 0 || c.Selected == 0 {
			name := c.Resource
			if c.Of > 1 {
				name += fmt.Sprintf(", selector %d of %d", c.Selector, c.Of)
			}
			fmt.Fprintf(&out, "  %s: selects %d, rejects %d\n", name, c.Selected, c.Rejected)
		}
		if c.Rejected > 0 {
			fmt.Fprintf(&out, "    by       %s\n", c.Summary())
		}
		for _, miss := range c.Nearest {
			fmt.Fprintf(&out, "    nearest  %s\n", miss)
		}
	}
	if out.Len() == 0 {
		return nil
	}
	return fmt.Appendf(nil, "Pools of %s:\n%s\n", s.file, out.Bytes())
}
