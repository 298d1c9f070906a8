package pools

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Tandem are the keys of a resource that the stock plugin does not have, and ignores: what a container is
// told of its pairs. All of it is opt-in, and this plugin alone tells it: of equal names from two plugins the
// kubelet keeps either.
type Tandem struct {
	Pairs bool `json:"pairs"` // mount /run/tandem/pairs.json, a coordination.PairsFile
	// Alias is for PCIDEVICE_… a second time under a name that shells can read: other characters than letters
	// and digits are _.
	Alias     bool     `json:"alias"`
	Variables []string `json:"variables"` // some of PairVariables
	// AllHCAs gives a container all HCAs of a pool of shared ones, whichever it was given, as the RDMA shared
	// device plugin does: for pods that ask for one and mean all.
	AllHCAs bool `json:"allHCAs"`
}

// PairVariables are the variables that can be asked for, sorted. Package grants has what each of them says.
var PairVariables = []string{
	"NCCL_IB_HCA", "NVSHMEM_HCA_LIST", "UCX_NET_DEVICES",
	"VLLM_GPU_NIC_PCIE_MAPPING", "VLLM_NIC_SELECTION_VARS",
}

// readTandem reads the key "tandem" as far as it can be understood.
func readTandem(raw json.RawMessage) (t Tandem, warnings []string) {
	if len(raw) == 0 {
		return t, nil
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return Tandem{}, []string{fmt.Sprintf("tandem is left out: %v", explain(err, raw))}
	}
	for _, warning := range ignored(raw, reflect.TypeFor[Tandem](), "unknown and ignored") {
		warnings = append(warnings, "tandem: "+warning)
	}
	t.Variables = slices.DeleteFunc(t.Variables, func(variable string) bool {
		known := slices.Contains(PairVariables, variable)
		if !known {
			const unknown = "tandem: variables: %q is unknown and left out; want some of %s"
			warnings = append(warnings, fmt.Sprintf(unknown, variable, strings.Join(PairVariables, ", ")))
		}
		return !known
	})
	return t, warnings
}
