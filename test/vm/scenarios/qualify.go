// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/qualify"
)

// listing prints the path, the class and the NUMA node of each PCI function but VFs, which NCCL counts as
// their PFs (NCCL_IB_MERGE_VFS).
const listing = `for function in /sys/bus/pci/devices/*; do
	[ -e $function/physfn ] || echo $(readlink -f $function) $(cat $function/class) $(cat $function/numa_node)
done`

// qualifying runs tandem qualify on the node, with files of NCCL and of tandem verify. The first line is the
// exit code.
const qualifying = seesIdentity + `cat >/tmp/nccl.xml <<'XML'
%s
XML
cat >/tmp/verified.json <<'JSON'
%s
JSON
tandem qualify --nccl-topology /tmp/nccl.xml --verified /tmp/verified.json --force -f /tmp/report.json >/tmp/verdicts 2>&1
echo $?
cat /tmp/report.json
END
`

// reportFile returns the path of the node's report.
func (t *tester) reportFile() string {
	return t.Path(fmt.Sprintf("run/report-%s.json", strings.ToLower(t.node.Shape.Name)))
}

// qualified runs tandem qualify on the node with the traffic of a pod. Every part has to pass, also when the
// host judges the report again. The report is kept as a file.
func (w *wire) qualified(h holder, file string) func(context.Context) (problem, note string, err error) {
	return func(ctx context.Context) (problem, note string, err error) {
		functions, err := w.Run(ctx, listing)
		if err != nil {
			return "", "", err
		}
		var verified json.RawMessage
		verify := append([]string{"tandem", "verify", "--traffic", "-o", "json"}, least...)
		if _, err := w.ExecJSON(ctx, h.pod, &verified, verify...); err != nil {
			return "", "", err
		}
		printed, err := w.Run(ctx, fmt.Sprintf(qualifying, dump(functions), verified))
		if err != nil {
			return "", "", err
		}
		code, text, _ := strings.Cut(printed, "\n")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return "", "", err
		}
		r, err := qualify.Read(strings.NewReader(text))
		if err != nil {
			return err.Error(), "", nil
		}
		if err := r.Judge(); err != nil {
			return err.Error(), "", nil
		}
		return unqualified(r, code), note, nil
	}
}

// unqualified returns the parts that did not pass, "" for none.
func unqualified(r *qualify.Report, code string) string {
	var problems []string
	for _, result := range r.Results {
		if result.Verdict != "passed" {
			problems = append(problems, fmt.Sprintf("%s is %s: %s", result.Part, result.Verdict,
				strings.Join(result.Details, ", ")))
		}
	}
	if len(problems) == 0 && code != "0" {
		problems = append(problems, "exit code "+code)
	}
	return strings.Join(problems, "; ")
}

// dump returns the topology file that NCCL writes of the functions of a listing. NCCL (ncclTopoGetXmlFromSys)
// goes two levels up at a time, from a function to the upstream port of its switch and so on, as long as
// there are PCI functions, and writes each as an element around the one before.
func dump(listing string) string {
	type element struct {
		address, parent, class string
	}
	numa := map[string]string{}     // of the elements below <cpu>
	below := map[string][]element{} // by parent, "" for <cpu>
	seen := map[string]bool{}
	for line := range strings.Lines(listing) {
		words := strings.Fields(line)
		if len(words) != 3 || !isCard(words[1]) {
			continue
		}
		above := strings.Split(words[0], "/") // "", "sys", "devices", "pci0000:07", …
		above = slices.DeleteFunc(above, func(name string) bool { return strings.Count(name, ":") != 2 })
		class := words[1]
		for at := len(above) - 1; at >= 0 && !seen[above[at]]; at -= 2 {
			seen[above[at]] = true
			parent := ""
			if at >= 2 { // past the port between
				parent = above[at-2]
			}
			below[parent] = append(below[parent], element{above[at], parent, class})
			numa[above[at]], class = words[2], "0x060400"
		}
	}
	var text strings.Builder
	var write func(parent string)
	write = func(parent string) {
		for _, e := range below[parent] {
			if parent == "" {
				fmt.Fprintf(&text, "<cpu numaid=%q>\n", numa[e.address])
			}
			fmt.Fprintf(&text, "<pci busid=%q class=%q>\n", e.address, e.class)
			write(e.address)
			text.WriteString("</pci>\n")
			if parent == "" {
				text.WriteString("</cpu>\n")
			}
		}
	}
	write("")
	return "<system version=\"1\">\n" + text.String() + "</system>"
}

// isCard reports whether a class is that of a GPU or of a NIC.
func isCard(class string) bool {
	return slices.Contains([]string{"0x02", "0x03", "0x12"}, class[:min(len(class), 4)])
}
