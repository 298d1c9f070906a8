// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/test/best"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/topology"
)

// pairsMount and mapping are a container's path and variable with its pairs.
const (
	pairsMount = "/run/tandem/pairs.json"
	mapping    = "VLLM_GPU_NIC_PCIE_MAPPING"
)

// tandem is the key of that name in the SR-IOV config.
type tandem struct {
	Pairs     bool     `json:"pairs"`
	Variables []string `json:"variables"`
}

// told is the requested description of pairs for every container with VFs.
var told = tandem{Pairs: true, Variables: []string{mapping, "NCCL_IB_HCA"}}

// told checks the description of a container's pairs at the time when the kubelet would start it: the pairs
// file contains exactly its devices in the best possible pairs, and the variables agree.
func (a *admission) told(p *Placement, response node.Response) {
	pairs, err := a.pairs(p, response)
	p.PairsFile, p.Told = err, err == nil && mapped(pairs, strings.Split(response.Env[mapping], ","))
}

func (a *admission) pairs(p *Placement, response node.Response) ([]pairs.Pair, error) {
	file, mounted := response.Mounts[pairsMount]
	if mounted != (len(p.VFs) > 0) {
		return nil, fmt.Errorf("%d VFs, but mounts %v", len(p.VFs), response.Mounts)
	}
	if !mounted {
		return nil, nil
	}
	told, err := pairs.Read(file)
	if err != nil {
		return nil, err
	}
	var levels []topology.Level
	seen := map[string][]string{}
	for _, pair := range told.Pairs {
		seen[VF] = append(seen[VF], pair.VF.ID)
		if pair.GPU == nil {
			continue
		}
		seen[a.GPU] = append(seen[a.GPU], pair.GPU.ID)
		levels = append(levels, a.Level(pair.GPU.Address, pair.VF.Address))
	}
	for resource, devices := range map[string][]Device{a.GPU: p.GPUs, VF: p.VFs} {
		var want []string
		for _, d := range devices {
			want = append(want, d.ID)
		}
		slices.Sort(want)
		slices.Sort(seen[resource])
		if got := slices.Compact(seen[resource]); !slices.Equal(got, want) {
			return nil, fmt.Errorf("%s says %s %v, the container has %v", pairsMount, resource, got, want)
		}
	}
	if got := best.Count(levels); len(p.GPUs) == len(p.VFs) && got != p.Matched {
		return nil, fmt.Errorf("%s pairs %v, the best is %v", pairsMount, got, p.Matched)
	}
	return told.Pairs, nil
}

// mapped reports whether the mapping has for every GPU a VF that serves it, or that serves another partition
// of its card: both have one address, and so one entry.
func mapped(all []pairs.Pair, entries []string) bool {
	for _, pair := range all {
		serves := func(p pairs.Pair) bool {
			return p.GPU != nil && p.GPU.Address == pair.GPU.Address &&
				slices.Contains(entries, p.GPU.Address.String()+"="+p.VF.Address.String())
		}
		if pair.GPU != nil && !slices.ContainsFunc(all, serves) {
			return false
		}
	}
	return true
}
