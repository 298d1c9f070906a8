// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// Edits merges the grants of a container in the order of the device IDs, all of which are in grants.
func (h Host) Edits(pool pools.Pool, order []string, grants map[string]*Grant) (container.Edits, error) {
	var edits container.Edits
	info := map[string]map[string]map[string]string{}
	for _, id := range order {
		info[id] = grants[id].Info
		edits.AddNodes(grants[id].Nodes...)
	}
	infoJSON, err := json.Marshal(info)
	if err != nil {
		return edits, fmt.Errorf("write device facts of %s: %w", pool.Name, err)
	}
	name := variable(pool.Name)
	edits.Env = map[string]string{name: strings.Join(order, ","), name + "_INFO": string(infoJSON)}
	if pool.Resource.DeviceType == pools.SharedHCA {
		edits.Env = map[string]string{name: strings.Join(addresses(pool, order), ",")}
	}
	if pool.Resource.Tandem.Alias {
		for _, suffix := range []string{"", "_INFO"} {
			if value, ok := edits.Env[name+suffix]; ok {
				edits.Env[shellName(name)+suffix] = value
			}
		}
	}
	if h.CDI != nil {
		edits.Nodes, edits.Named = nil, h.CDI.named(cdiPoolOf(pool), order, grants)
	}
	return edits, nil
}

// addresses returns the addresses of devices, equal for replicas of one HCA. For shared HCAs this list is the
// container's only variable: the RDMA shared device plugin sets none, and tandem verify reads this one.
func addresses(pool pools.Pool, ids []string) []string {
	var list []string
	for _, id := range ids {
		if d, ok := pool.Device(id); ok {
			list = append(list, d.Address.String())
		}
	}
	return list
}

// variable returns the name of the environment variable with the device IDs of a resource. Only dots are
// replaced, although shells reject other characters too, because users read names such as
// PCIDEVICE_NVIDIA_COM_SRIOV-RDMA-VF (GetEnvs in pkg/resources/pool_stub.go of the stock plugin).
func variable(resource string) string {
	prefix, name, _ := strings.Cut(resource, "/")
	return strings.ToUpper(strings.ReplaceAll("PCIDEVICE_"+prefix+"_"+name, ".", "_"))
}

// shellName returns a variable's name without characters that shells reject.
func shellName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, name)
}
