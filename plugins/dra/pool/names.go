// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/dra/inventory"
	"github.com/tandem-k8s/tandem/topology"
)

// addressName returns an address as part of a DNS label: "11-00-0", with the domain if it is not 0.
func addressName(a topology.Address) string {
	name := fmt.Sprintf("%02x-%02x-%d", a.Bus, a.Device, a.Function)
	if a.Domain != 0 {
		name = fmt.Sprintf("%04x-%s", a.Domain, name)
	}
	return name
}

// gpuName names a GPU by its card, and a partition also by its part: "11-00-0", "11-00-0-p3".
func gpuName(g *inventory.GPU) string {
	name := addressName(g.Card)
	if !g.Whole() {
		name += "-p" + part(g)
	}
	return name
}

// Counter names of a GPU and of a VF.
func gpuCounter(g *inventory.GPU) string { return string(GPU) + "-" + gpuName(g) }
func vfCounter(v *inventory.VF) string   { return string(VF) + "-" + vfName(v) }

// part returns the name of a partition within its card; the card's own function is the first partition.
func part(g *inventory.GPU) string {
	if g.Part == "" {
		return "0"
	}
	return g.Part
}

// vfName names a VF by its address, and a sub-function also by its number: "0c-00-1", "0c-00-0-sf4".
func vfName(v *inventory.VF) string {
	name := addressName(v.Address)
	if v.Aux != "" {
		name += "-sf" + v.Aux[strings.LastIndexByte(v.Aux, '.')+1:]
	}
	return name
}

// label converts a text to a label value: at most 63 letters, digits, "-", "_" and ".", with an alphanumeric
// first and last character.
func label(text string) string {
	const most = 63
	var out strings.Builder
	for _, r := range text {
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r)
		switch {
		case out.Len() == most:
		case ok:
			out.WriteRune(r)
		case !strings.HasSuffix(out.String(), "-"):
			out.WriteByte('-')
		}
	}
	return strings.Trim(out.String(), "-_.")
}
