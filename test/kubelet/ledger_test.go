package kubelet_test

import (
	"cmp"
	"fmt"

	gocmp "github.com/google/go-cmp/cmp"
)

// checkLedger compares what the coordinator believes with what the kubelet knows. The coordinator learns of
// departures only when it is asked the next time, so a last pod is admitted first; whose that pod's own devices are
// it need not know yet.
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
		believed := map[string]string{}
		for _, device := range resource.Devices {
			if device.Allocated {
				believed[device.Device.Id] = cmp.Or(device.Owner.GetPod(), last.Name)
			}
		}
		if diff := gocmp.Diff(l.Owners(resource.Name), believed); diff != "" {
			l.t.Errorf("%s: owners by kubelet and by coordinator (-kubelet +coordinator):\n%s", resource.Name, diff)
		}
	}
}
