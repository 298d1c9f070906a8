// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

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

// Row is a row of the result. Its exported fields and its methods are the columns.
type Row struct {
	Setup, Scenario string
	Problem         string           // the fault; "" for none
	outcome         *cluster.Outcome // of a pod; nil without a pod
	note            string
	took            time.Duration
}

// Kubelet returns the kubelet's verdict.
func (r Row) Kubelet() string {
	switch {
	case r.outcome == nil:
		return ""
	case r.outcome.Reason != "":
		return "refused: " + r.outcome.Reason
	default:
		return "admitted"
	}
}

// Saw returns the containers' views, with notes.
func (r Row) Saw() string {
	var parts []string
	if r.outcome != nil {
		for _, v := range r.outcome.Containers {
			parts = append(parts, addresses("GPUs", v.GPUs)+addresses("VFs", v.VFs))
		}
	}
	if r.outcome != nil && r.outcome.Reason != "" {
		parts = append(parts, strings.TrimSpace(r.outcome.Message))
	}
	return join(append(parts, r.note)...)
}

// addresses lists the last elements of paths.
func addresses(what string, paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	list := []string{"", what}
	for _, path := range paths {
		list = append(list, strings.TrimPrefix(filepath.Base(path), "0000:"))
	}
	return strings.Join(list, " ")
}

// Pairs returns the number of pairs on one switch of a container's possible pairs.
func (r Row) Pairs() string {
	var list []string
	if r.outcome != nil {
		for _, v := range r.outcome.Containers {
			if most := min(len(v.GPUs), len(v.VFs)); most > 0 {
				list = append(list, fmt.Sprintf("%d/%d", v.Pairs(), most))
			}
		}
	}
	return strings.Join(list, " ")
}

// Verdict returns the result of tandem verify.
func (r Row) Verdict() string {
	if r.outcome == nil {
		return ""
	}
	var list []string
	for _, v := range r.outcome.Containers {
		switch {
		case len(v.GPUs) == 0 || len(v.VFs) == 0:
		case v.Verified:
			list = append(list, "verified")
		default:
			list = append(list, "not verified")
		}
	}
	return strings.Join(list, " ")
}

// Seconds returns the duration.
func (r Row) Seconds() string {
	took := r.took
	if r.outcome != nil {
		took = r.outcome.Took
	}
	return fmt.Sprintf("%.1f", took.Seconds())
}

// join joins the notes that are not empty.
func join(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(s string) bool { return s == "" }), "; ")
}

// lastLine returns the last line of a program's output, for a note.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
