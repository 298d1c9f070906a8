// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/test/vm/cluster"
)

// scenario is a pod with its expected outcome.
type scenario struct {
	name      string
	asks      []cluster.Ask
	networks  string // of Multus, "" for none
	scheduler string // scheduler of the pod, "" for the default
	refused   string // the kubelet's reason; "" for an admission
	perftest  bool   // the container has perftest
	limit     string // reason for which pairs may be distant; "" if they must not be
}

func (c scenario) pod(name string) cluster.Pod {
	return cluster.Pod{
		Name: name, Asks: c.asks, Networks: c.networks, Scheduler: c.scheduler, Perftest: c.perftest,
	}
}

// setup is a way to run the node.
type setup struct {
	name      string
	deploy    string // a folder below deploy
	operators bool   // instead of deploy, operators of the stock plugins start Tandem's image
	driver    bool   // instead of deploy, the node moves to mode dra
	scheduler bool   // tandem-scheduler runs beside the cluster's own
	tandem    bool   // require all pairs on one switch
	pairsFile bool   // containers have a pairs.json
	source    string // required source of pod requests, "" for any
	scenarios []scenario
}

const topologyAffinity = "TopologyAffinityError"

func pair(n int) scenario {
	a := cluster.Ask{GPUs: n, VFs: n}
	return scenario{name: a.String(), asks: []cluster.Ask{a}}
}

// pair returns a pod with n pairs, requested as in the set-up.
func (s setup) pair(n int) scenario {
	if s.driver {
		return asked(n, cluster.ByTemplate)
	}
	return pair(n)
}

// refusedPair returns a pod that the kubelet refuses even on an empty node.
func refusedPair(n int) scenario {
	s := pair(n)
	s.refused = topologyAffinity
	return s
}

var kinds = []scenario{
	{name: "4 GPUs", asks: []cluster.Ask{{GPUs: 4}}},
	{name: "4 VFs", asks: []cluster.Ask{{VFs: 4}}},
	{name: "Guaranteed, 1 CPU and 2+2", asks: []cluster.Ask{{GPUs: 2, VFs: 2, CPUs: 1}}},
}

// telling are scenarios that depend on knowledge of the whole request.
var telling = []scenario{
	{name: "two containers, 2+2 and 1+1", asks: []cluster.Ask{{GPUs: 2, VFs: 2}, {GPUs: 1, VFs: 1}}},
	{
		name: "init container 2+2, then 2+2",
		asks: []cluster.Ask{{GPUs: 2, VFs: 2, Init: true}, {GPUs: 2, VFs: 2}},
	},
	// CPU 0 is the system's, so these two CPUs are on the second socket, and so are the GPUs. A VF without a
	// NUMA hint that is requested before the GPU is placed for GPUs alone: on the first socket.
	{
		name: "Guaranteed, 2 CPUs and 2+2", asks: []cluster.Ask{{GPUs: 2, VFs: 2, CPUs: 2}},
		limit: "Tandem does not foresee which socket has the CPUs",
	},
}

// judge returns the fault of an outcome, "" for none.
func judge(s setup, c scenario, o *cluster.Outcome) string {
	switch {
	case o.Reason != c.refused:
		return fmt.Sprintf("refused for %q, want %q", o.Reason, c.refused)
	case o.Reason != "":
		return ""
	}
	for i, a := range c.asks {
		v := o.Containers[i]
		switch {
		case len(v.GPUs) != a.GPUs || len(v.VFs) != a.VFs:
			return fmt.Sprintf("container %d saw %d GPUs and %d VFs", i, len(v.GPUs), len(v.VFs))
		case !s.tandem || c.limit != "":
		case v.Pairs() != min(a.GPUs, a.VFs):
			return fmt.Sprintf("container %d has %d of %d pairs on one switch", i, v.Pairs(), min(a.GPUs, a.VFs))
		case !v.Verified:
			return fmt.Sprintf("container %d: %s", i, v.Verdict)
		case s.pairsFile && !strings.Contains(v.Verdict, "pairs.json agrees"):
			return fmt.Sprintf("container %d has no pairs.json that agrees: %s", i, v.Verdict)
		}
	}
	return ""
}
