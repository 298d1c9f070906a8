package pools

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// MaxReplicas is how many devices a pool of shared HCAs has at the most: as many as placement is quick with,
// and half of what coordination holds of a resource.
const MaxReplicas = 1 << 13

// replicaMark is between the address of a shared HCA and the number of the replica, as in the IDs of shared
// GPUs (NVIDIA/k8s-device-plugin, internal/rm/devices.go).
const replicaMark = "::"

// share offers every HCA that the resource selects as so many devices as it says. An HCA may be in several
// resources: shared are those of the resources before.
func (r *ResourceConfig) share(
	candidates []*function, shared map[topology.Address]bool,
) (devices []Device, warnings []string) {
	var hcas []Device
	for _, f := range candidates {
		if r.offers(f) && r.Selectors[0].selects(f) {
			hcas = append(hcas, r.hca(f, shared))
		}
	}
	slices.SortFunc(hcas, Device.Compare)
	replicas := min(r.Replicas, MaxReplicas/max(len(hcas), 1))
	if replicas < r.Replicas {
		const fewer = "resource %q: rdmaHcaMax: a resource has %d devices at most: " +
			"each of its %d HCAs is offered %d times"
		warnings = append(warnings, fmt.Sprintf(fewer, r.Name, MaxReplicas, len(hcas), replicas))
	}
	for _, d := range hcas {
		for n := range replicas {
			d.ID = replicaID(d.Address, r.firstReplica+n)
			devices = append(devices, d)
		}
	}
	return devices, warnings
}

// hca is what all replicas of an HCA have in common. Nothing of it is hidden by containers: what they share
// stays on the node.
func (r *ResourceConfig) hca(f *function, shared map[topology.Address]bool) Device {
	d := r.device(f, &r.Selectors[0])
	d.HCA, d.Visible = d.ID, nil
	if shared[f.Address] {
		d.HCA += "." + r.Name
	}
	shared[f.Address] = true
	return d
}

// replicaID is the kubelet's device ID of a replica: "0000:0c:00.0::3". Numbers go on from resource to
// resource, as the resources' rdmaHcaMax say, so that no two of them have the same ID.
func replicaID(a topology.Address, number int) string {
	return fmt.Sprintf("%s%s%d", a, replicaMark, number)
}

// FromID is what a device ID alone tells of a device: false for one that holds no address.
func FromID(id string) (Device, bool) {
	address, _, replica := strings.Cut(id, replicaMark)
	a, err := topology.ParseAddress(address)
	d := Device{ID: id, Address: a}
	if replica {
		d.HCA = address
	}
	return d, err == nil
}
