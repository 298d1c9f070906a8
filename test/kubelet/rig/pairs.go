package rig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/test/kubelet/best"
	"github.com/tandem-k8s/tandem/test/kubelet/node"
	"github.com/tandem-k8s/tandem/topology"
)

// pairsMount and mapping are where a container is told of its pairs.
const (
	pairsMount = "/run/tandem/pairs.json"
	mapping    = "VLLM_GPU_NIC_PCIE_MAPPING"
)

// tandem is the key of that name in the SR-IOV config.
type tandem struct {
	Pairs     bool     `json:"pairs"`
	Variables []string `json:"variables"`
}

// told is what every container with VFs is told.
var told = tandem{Pairs: true, Variables: []string{mapping, "NCCL_IB_HCA"}}

// told checks what a container is told of its pairs at the moment at which the kubelet would start it: its pairs file names exactly
// its devices and pairs them as well as they can be.
func (a *admission) told(p *Placement, response node.Response) error {
	file, mounted := response.Mounts[pairsMount]
	if mounted != (len(p.VFs) > 0) {
		return fmt.Errorf("%d VFs, but mounts %v", len(p.VFs), response.Mounts)
	}
	if !mounted {
		return nil
	}
	pairs, err := coordination.ReadPairs(file)
	if err != nil {
		return err
	}
	var levels []topology.Level
	seen := map[string][]string{}
	p.Told = true
	for _, pair := range pairs.Pairs {
		seen[VF] = append(seen[VF], pair.VF.ID)
		if pair.GPU == nil {
			continue
		}
		seen[GPU] = append(seen[GPU], pair.GPU.ID)
		levels = append(levels, a.Level(pair.GPU.Address, pair.VF.Address))
		entry := pair.GPU.Address.String() + "=" + pair.VF.Address.String()
		p.Told = p.Told && slices.Contains(strings.Split(response.Env[mapping], ","), entry)
	}
	for resource, devices := range map[string][]Device{GPU: p.GPUs, VF: p.VFs} {
		var want []string
		for _, d := range devices {
			want = append(want, d.ID)
		}
		slices.Sort(want)
		slices.Sort(seen[resource])
		if got := slices.Compact(seen[resource]); !slices.Equal(got, want) {
			return fmt.Errorf("%s says %s %v, the container has %v", pairsMount, resource, got, want)
		}
	}
	if got := best.Count(levels); len(p.GPUs) == len(p.VFs) && got != p.Matched {
		return fmt.Errorf("%s pairs %v, the best is %v", pairsMount, got, p.Matched)
	}
	return nil
}
