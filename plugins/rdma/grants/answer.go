// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// Edits puts the grants of a container together, in the order of these device IDs. All of them are in grants.
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

// addresses are those of devices, of replicas of one HCA the same. Of a shared HCA a container is told this
// alone: the RDMA shared device plugin sets no variables, and tandem verify reads this one.
func addresses(pool pools.Pool, ids []string) []string {
	var list []string
	for _, id := range ids {
		if d, ok := pool.Device(id); ok {
			list = append(list, d.Address.String())
		}
	}
	return list
}

// variable names the environment variable with the device IDs of a resource. Of all characters that a shell
// would not take, only dots are replaced: users read PCIDEVICE_NVIDIA_COM_SRIOV-RDMA-VF today (GetEnvs in
// pkg/resources/pool_stub.go of the stock plugin).
func variable(resource string) string {
	prefix, name, _ := strings.Cut(resource, "/")
	return strings.ToUpper(strings.ReplaceAll("PCIDEVICE_"+prefix+"_"+name, ".", "_"))
}

// shellName is a variable's name with all that shells do not take replaced.
func shellName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, name)
}
