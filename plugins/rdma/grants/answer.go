package grants

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// Answer puts the grants of a container together, in the order of these device IDs. All of them are in
// grants.
func (h Host) Answer(
	pool pools.Pool, order []string, grants map[string]*Grant,
) (*v1beta1.ContainerAllocateResponse, error) {
	response := &v1beta1.ContainerAllocateResponse{}
	info := map[string]map[string]map[string]string{}
	for _, id := range order {
		info[id] = grants[id].Info
		for _, node := range grants[id].Nodes {
			same := func(other *v1beta1.DeviceSpec) bool { return other.HostPath == node.HostPath }
			if !slices.ContainsFunc(response.Devices, same) {
				response.Devices = append(response.Devices, node)
			}
		}
	}
	infoJSON, err := json.Marshal(info)
	if err != nil {
		return nil, fmt.Errorf("write device facts of %s: %w", pool.Name, err)
	}
	name := variable(pool.Name)
	response.Envs = map[string]string{name: strings.Join(order, ","), name + "_INFO": string(infoJSON)}
	if pool.Resource.DeviceType == pools.SharedHCA {
		response.Envs = map[string]string{name: strings.Join(addresses(pool, order), ",")}
	}
	if pool.Resource.Tandem.Alias {
		for _, suffix := range []string{"", "_INFO"} {
			if value, ok := response.Envs[name+suffix]; ok {
				response.Envs[shellName(name)+suffix] = value
			}
		}
	}
	if h.CDI != nil {
		h.CDI.replace(cdiPoolOf(pool), response, order, grants)
	}
	return response, nil
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
