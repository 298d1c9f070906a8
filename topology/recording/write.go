// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
)

// header is the first line of a machine file; the number changes when older readers would misread newer
// files.
const header = "# tandem machine v1"

// WriteTo writes the machine file. The same machine always gives the same bytes.
func (m *Machine) WriteTo(w io.Writer) (int64, error) {
	var out bytes.Buffer
	fmt.Fprintln(&out, header)
	for _, comment := range m.comments {
		if comment != "" {
			comment = " " + comment
		}
		fmt.Fprintln(&out, "#"+comment)
	}
	m.root.each("",
		func(s section) { fmt.Fprintf(&out, "[%s]\n", quotePath(s.dir)) },
		func(n *node) { writeEntry(&out, n) })
	fmt.Fprintf(&out, "end %d entries\n", m.Len())
	return out.WriteTo(w)
}

func writeEntry(out io.Writer, n *node) {
	name := quoteName(n.name)
	if n.kind == fs.ModeSymlink {
		fmt.Fprintf(out, "%s -> %s\n", name, quotePath(n.text))
		return
	}
	switch lines := plainLines(n.text); len(lines) {
	case 0:
		fmt.Fprintf(out, "%s = %s\n", name, strconv.Quote(n.text))
	case 1:
		fmt.Fprintf(out, "%s = %s\n", name, lines[0])
	default:
		fmt.Fprintf(out, "%s =\n\t%s\n", name, strings.Join(lines, "\n\t"))
	}
}
