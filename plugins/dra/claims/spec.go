// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/pkg/parser"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/rdma/grants"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// A claim's CDI spec has one device for each group of its requests, named after the group's first request.
// The file name contains the claim's UID, so that files of claims that are not prepared can be removed.
const (
	cdiClass   = "claim"
	cdiVersion = "0.5.0" // the first with hostPath; later features are not used
)

// cdiDevice returns the name of the CDI device for a group, given the group's first request.
func cdiDevice(claim types.UID, request string) string { return string(claim) + "-" + request }

// names sets the CDI devices of a claim's devices: all of the group with the first device of each request, so
// that a container with the request gets each of them once.
func (c Claim) names(environments map[string]*environment) {
	for i, d := range c.Devices {
		c.Devices[i].CDI = nil
		if slices.ContainsFunc(c.Devices[:i], func(e Prepared) bool { return e.request() == d.request() }) {
			continue
		}
		edits := &environments[d.Group].edits
		if !isEmpty(edits.CDI()) {
			first := slices.IndexFunc(c.Devices, func(e Prepared) bool { return e.Group == d.Group })
			name := parser.QualifiedName(pool.Driver, cdiClass, cdiDevice(c.UID, c.Devices[first].request()))
			c.Devices[i].CDI = []string{name}
		}
		c.Devices[i].CDI = append(c.Devices[i].CDI, edits.Named.Devices...)
	}
}

func isEmpty(edits specs.ContainerEdits) bool {
	return len(edits.Env)+len(edits.DeviceNodes)+len(edits.Mounts) == 0
}

// ownCDI returns the CDI devices of the claim's own spec that were reported to the kubelet.
func (c Claim) ownCDI() map[string]bool {
	own := map[string]bool{}
	for _, d := range c.Devices {
		for _, name := range d.CDI {
			if strings.HasPrefix(name, pool.Driver+"/"+cdiClass+"=") {
				own[name] = true
			}
		}
	}
	return own
}

// environment contains the edits and files for the containers of one group, not yet written.
type environment struct {
	edits container.Edits
	told  *pairs.File // nil if no resource requests pairs
	file  string      // path of the pairs file
	infos []info
}

// info is the information about a VF for Multus.
type info struct {
	pool   pools.Pool
	device pools.Device
	grant  *grants.Grant
}

// write writes the pairs file, and the device-info files for Multus.
func (e *environment) write(host grants.Host) error {
	for _, i := range e.infos {
		if err := host.WriteDevinfo(i.pool, i.device, i.grant); err != nil {
			return err
		}
	}
	if e.told == nil {
		return nil
	}
	return e.told.Write(host.Disk, e.file)
}
