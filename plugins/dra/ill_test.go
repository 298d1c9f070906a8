// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	healthpb "k8s.io/kubelet/pkg/apis/dra-health/v1"
)

// TestPrepareIllDevice: a device that becomes unhealthy between the allocation and the kubelet's call is not
// given to the container.
func TestPrepareIllDevice(t *testing.T) {
	for name, c := range map[string]struct {
		devices []string // of the claim
		ill     string
	}{
		"GPU":           {[]string{"gpu-11-00-0"}, "0000:11:00.0"},
		"VF of a pair":  {[]string{"pair-11-00-0"}, "0000:0c:00.1"},
		"VF beside GPU": {[]string{"gpu-11-00-0", "vf-0c-00-2"}, "0000:0c:00.2"},
		"VF by itself":  {[]string{"vf-0c-00-2"}, "0000:0c:00.2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, n := newCluster(t, "v1.37.1"), newWatchedNode(t, 4)
			config, gpus := n.config(server, "")
			defer n.start(config)()
			k := n.register("")
			ill, well := newClaim("ill", "gpu", c.devices...), newClaim("well", "pair", "pair-46-00-0")
			server.reserve("train", ill)
			server.reserve("other", well)
			if strings.HasSuffix(c.ill, ".0") {
				gpus.fallIll(c.ill)
			} else {
				n.breakPort(c.ill)
				config.VFs.Look()
			}
			n.awaitUnhealthy(t, c.ill)
			if _, wrong := k.prepare(t.Context(), well); wrong != "" {
				t.Fatalf("control: healthy devices: %s", wrong)
			}
			cdi, wrong := k.prepare(t.Context(), ill)
			if wrong == "" && (c.ill == "0000:11:00.0" || strings.Contains(n.spec(ill), c.ill)) {
				t.Errorf("prepared with unhealthy %s: %v", c.ill, cdi)
			}
		})
	}
}

// TestHealthOfContainer: the kubelet gets the health of the devices in the container, which can be others
// than those in the name of the claim's device.
func TestHealthOfContainer(t *testing.T) {
	for name, c := range map[string]struct {
		off     []string // feature gates
		devices []string // of the claim; the last one is judged
		ill     string
		want    healthpb.HealthStatus
		has     string // by the CDI spec, "" if the container has no VF
	}{
		"VF of the container": {nil, []string{"gpu-11-00-0", "vf-2a-00-2"}, "0000:0c:00.1",
			healthpb.HealthStatus_UNHEALTHY, "0000:0c:00.1"},
		"VF of the name": {nil, []string{"gpu-11-00-0", "vf-2a-00-2"}, "0000:2a:00.2",
			healthpb.HealthStatus_HEALTHY, "0000:0c:00.1"},
		"VF that was not requested": {[]string{"DRAPartitionableDevices"}, []string{"gpu-vf-11-00-0"},
			"0000:0c:00.1", healthpb.HealthStatus_HEALTHY, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, n := newCluster(t, "v1.37.1", c.off...), newWatchedNode(t, 4)
			config, gpus := n.config(server, "")
			defer n.start(config)()
			k := n.register("")
			claim := newClaim("train", "gpu", c.devices...)
			server.awaitPublished(func(devices map[string]resourceapi.Device, _ int) bool { return len(devices) > 0 })
			server.reserve("train-0", claim)
			if _, wrong := k.prepare(t.Context(), claim); wrong != "" {
				t.Fatalf("control: healthy devices: %s", wrong)
			}
			if spec := n.spec(claim); !strings.Contains(spec, c.has) || c.has == "" && strings.Contains(spec, c.ill) {
				t.Fatalf("control: the container has %s", spec)
			}
			n.breakPort(c.ill)
			config.VFs.Look()
			n.awaitUnhealthy(t, c.ill)
			gpus.fallIll("0000:46:00.0")
			name := c.devices[len(c.devices)-1]
			if got := healthBeside(t, k, name, "46-00-0"); got != c.want {
				t.Errorf("with unhealthy VF %s, device %s, whose container has VF %q, has reported health %v",
					c.ill, name, c.has, got)
			}
		})
	}
}

// healthBeside returns the health of a device in the first report in which the GPU with the name at the end
// of its devices' names is unhealthy.
func healthBeside(t *testing.T, k *caller, device, gpu string) healthpb.HealthStatus {
	t.Helper()
	stream, err := healthpb.NewDRAResourceHealthClient(k.ClientConn).NodeWatchResources(t.Context(),
		&healthpb.NodeWatchResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		report, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		all, later := map[string]healthpb.HealthStatus{}, false
		for _, d := range report.GetDevices() {
			all[d.GetDevice().GetDeviceName()] = d.GetHealth()
			later = later || strings.HasSuffix(d.GetDevice().GetDeviceName(), gpu) &&
				d.GetHealth() == healthpb.HealthStatus_UNHEALTHY
		}
		if later {
			return all[device]
		}
	}
}
