// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"cmp"
	"fmt"
	"maps"

	gocmp "github.com/google/go-cmp/cmp"
)

// checkLedger compares what the coordinator believes with what the kubelet knows. The coordinator learns of
// departures only when it is asked the next time, so a last pod is admitted first; whose that pod's own
// devices are it need not know yet.
func (l *load) checkLedger() {
	l.t.Helper()
	for len(l.pods) > 1 {
		l.depart(0)
	}
	l.checks++
	last := shape{app: []want{{1, min(1, l.VFs())}}}.pod(fmt.Sprint("last-", l.checks), l.GPU)
	if _, err := l.Rig.Admit(deadline(l.t), last); err != nil {
		l.t.Fatal(err)
	}
	l.pods = append(l.pods, last)
	status, err := l.Status(deadline(l.t))
	if err != nil {
		l.t.Fatal(err)
	}
	for _, resource := range status.Resources {
		owners, believed := l.Owners(resource.Name), map[string]string{}
		for _, device := range resource.Devices {
			id := device.Device.Id
			switch held := owners[id]; {
			case device.Allocated && l.blind:
				believed[id] = cmp.Or(device.Owner.GetPod(), held)
			case device.Allocated:
				believed[id] = cmp.Or(device.Owner.GetPod(), last.Name)
			}
		}
		if l.blind { // nothing says of what is not offered that it is free
			maps.DeleteFunc(believed, func(_, owner string) bool { return owner == "" })
		}
		if diff := gocmp.Diff(owners, believed); diff != "" {
			l.t.Errorf("%s: owners by kubelet and by coordinator (-kubelet +coordinator):\n%s", resource.Name, diff)
		}
	}
}
