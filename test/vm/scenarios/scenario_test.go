// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"testing"

	"github.com/tandem-k8s/tandem/test/vm/cluster"
)

// Devices below one switch, and a VF below another one.
const (
	nearGPU = "/sys/devices/pci0000:20/0000:20:00.0/0000:20/0000:28:00.0"
	nearVF  = "/sys/devices/pci0000:20/0000:20:00.0/0000:20/0000:25:10.0"
	farVF   = "/sys/devices/pci0000:20/0000:20:01.0/0000:20/0000:2d:10.0"
)

func TestJudge(t *testing.T) {
	near := cluster.View{GPUs: []string{nearGPU}, VFs: []string{nearVF}, Verified: true}
	far := cluster.View{GPUs: near.GPUs, VFs: []string{farVF}, Verdict: "too far"}
	unverified := near
	unverified.Verified = false
	for _, c := range []struct {
		name   string
		tandem bool
		o      cluster.Outcome
		wanted scenario
		fault  bool
	}{
		{"near", true, cluster.Outcome{Containers: []cluster.View{near}}, pair(1), false},
		{"far", true, cluster.Outcome{Containers: []cluster.View{far}}, pair(1), true},
		{"far without Tandem", false, cluster.Outcome{Containers: []cluster.View{far}}, pair(1), false},
		{
			"far where that is a limit", true, cluster.Outcome{Containers: []cluster.View{far}},
			scenario{asks: pair(1).asks, limit: "a limit"}, false,
		},
		{
			"near and tandem verify disagrees", true, cluster.Outcome{Containers: []cluster.View{unverified}},
			pair(1), true,
		},
		{"too few devices", false, cluster.Outcome{Containers: []cluster.View{near}}, pair(2), true},
		{"refused", true, cluster.Outcome{Reason: topologyAffinity}, pair(1), true},
		{"refused as expected", true, cluster.Outcome{Reason: topologyAffinity}, refusedPair(8), false},
		{
			"refused for another reason", true, cluster.Outcome{Reason: "UnexpectedAdmissionError"},
			refusedPair(8), true,
		},
		{
			"admitted against the rule", true, cluster.Outcome{Containers: []cluster.View{near}},
			refusedPair(1), true,
		},
	} {
		if problem := judge(setup{tandem: c.tandem}, c.wanted, &c.o); (problem != "") != c.fault {
			t.Errorf("%s: %q", c.name, problem)
		}
	}
	for file, fault := range map[string]bool{"absent": true, "agrees": false} {
		v := near
		v.Verdict = "verified: 1 GPU, 1 VF, pairs in the order of the lists, pairs.json " + file
		o := cluster.Outcome{Containers: []cluster.View{v}}
		if problem := judge(setup{tandem: true, pairsFile: true}, pair(1), &o); (problem != "") != fault {
			t.Errorf("pairs.json is wanted, and %s: %q", file, problem)
		}
	}
}
