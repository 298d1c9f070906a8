// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/api"
)

// Failed and degraded devices have their reason in the status, by groups and by device.
func TestHealth(t *testing.T) {
	t.Parallel()
	r := &api.Resource{Name: "tandem.dev/vf", Kind: "vf", Connected: true}
	add := func(id string, healthy, degraded bool, reason string) {
		r.Devices = append(r.Devices, &api.DeviceStatus{Switch: "0000:08:00.0", Device: &api.Device{
			Id: id, Address: "0000:0c:00.1", Healthy: healthy, Degraded: degraded, Reason: reason,
		}})
	}
	for i := range 6 {
		add(fmt.Sprint("b", i), true, true, "symbol_error increased")
	}
	add("a", false, false, "link_downed increased")
	add("c", true, false, "")
	s := NewStatus(&api.StatusResponse{Resources: []*api.Resource{r}})
	for _, want := range []string{
		"HEALTH 1 device of tandem.dev/vf failed: link_downed increased: a\n" +
			"HEALTH 6 devices of tandem.dev/vf degraded: symbol_error increased: b0 b1 b2 b3 and 2 more\n",
		"unhealthy (failed: link_downed increased)", "free (degraded: symbol_error increased)",
	} {
		if !strings.Contains(s.WideTable().String(), want) {
			t.Errorf("want %s in\n%s", want, s.WideTable())
		}
	}
	if want := "(6 VFs degraded)"; !strings.Contains(s.Table().String(), want) {
		t.Errorf("want %s in\n%s", want, s.Table())
	}
}
