// SPDX-License-Identifier: Apache-2.0

package qualify

import (
	"bytes"
	"fmt"
	"text/tabwriter"

	"github.com/tandem-k8s/tandem/cmd/internal/cli"
)

// most is the number of details that Table shows of a part.
const most = 8

// Table returns the results for people. A text of a foreign report cannot start a line.
func (r *Report) Table() []byte {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PART\tVERDICT\tRESULT")
	for _, result := range r.Results {
		fmt.Fprintf(w, "%s\t%s\t%s\n", result.Part, result.Verdict,
			cli.Printable(result.Summary))
	}
	_ = w.Flush() // to memory
	for _, result := range r.Results {
		for i, detail := range result.Details {
			if i == most {
				fmt.Fprintf(&out, "%s: and %d more\n", result.Part, len(result.Details)-most)
				break
			}
			if i == 0 {
				fmt.Fprintln(&out)
			}
			fmt.Fprintf(&out, "%s: %s\n", result.Part, cli.Printable(detail))
		}
	}
	return out.Bytes()
}
