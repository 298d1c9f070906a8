// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"slices"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

// choice is a way to choose nodes.
type choice struct {
	name       string
	schedulers []started
}

// started is a scheduler that is started.
type started struct {
	program, name string // name is what pods say
	profiles      string // "" for the default configuration
	deployed      bool   // with the configuration and the rights in deployments/scheduler
}

const mostAllocated = `- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: MostAllocated
        resources: [{name: amd.com/gpu, weight: 1}, {name: tandem.dev/rdma_vf, weight: 1}]
`

var (
	byDefault = started{program: "kube-scheduler", name: "default-scheduler"}
	byPacking = started{program: "kube-scheduler", name: "default-scheduler", profiles: mostAllocated}
	byTandem  = started{program: "tandem-scheduler", name: "tandem-scheduler", deployed: true}
)

var choices = []choice{
	{"default", []started{byDefault}},
	{"MostAllocated", []started{byPacking}},
	{"Tandem", []started{byTandem}},
	{"Tandem and default in turn", []started{byTandem, byDefault}},
}

// logged has tandem-scheduler log its decisions, which costs it a fifth of its time.
const logged = "--vmodule=decision=4"

// start starts the schedulers. The flags are tandem-scheduler's.
func (c choice) start(p *plane.Plane, flags ...string) {
	for _, s := range c.schedulers {
		switch {
		case s.deployed:
			p.StartDeployed(s.program, flags...)
		case s.profiles != "":
			p.StartSchedulerWith(s.program, s.profiles)
		default:
			p.StartScheduler()
		}
	}
}

func (c choice) names() []string {
	var names []string
	for _, s := range c.schedulers {
		names = append(names, s.name)
	}
	return names
}

func (c choice) has(s started) bool { return slices.Contains(c.schedulers, s) }
