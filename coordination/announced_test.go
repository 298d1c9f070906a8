// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
)

// What a plugin publishes counts as taken over when the server goes by it, not when it is sent.
func TestAwaitTaken(t *testing.T) {
	server, members, _ := serverAndClient(t)
	c := coordinatorOf(server)
	release := publishSlowly(c, members[vfs])
	select {
	case <-members[vfs].announced.taken:
		t.Error("taken over before the PCI tree was read")
	default:
	}
	release()
	members[vfs].AwaitTaken(t.Context())
	resources := c.Resources() // GPUs and VFs
	if !slices.ContainsFunc(resources[1].GetDevices(), func(d *api.DeviceStatus) bool {
		return d.GetDevice().GetId() == "vf2" && d.GetDevice().GetHealthy()
	}) {
		t.Errorf("the server does not go by what is taken over: %v", resources)
	}
}

// shared are the devices of one GPU that many containers share.
func shared(devices int) (a device.Announcement) {
	for i := range devices {
		a.Devices = append(a.Devices, device.Device{
			ID:      fmt.Sprintf("MIG-GPU-b1028956-cfa2-0990-bf4a-5da9abb51763/12/%d::%05d", i%7, i),
			Address: topology.Address{Bus: 1}, NUMA: topology.Node(0), Healthy: true,
		})
	}
	return a
}

// TestMostDevices: as many devices as a resource may have, all of them held, are announced, known to whoever
// serves next, and told to people. A resource that has more is placed by its plugin alone, which says so
// once; the plugin's others are as ever.
func TestMostDevices(t *testing.T) {
	runDir := filepath.Join(shortDir(t), "run")
	log, logger := newLog()
	_, stopFirst := start(t, runDir)
	node, _ := startWith(t, Config{RunDir: runDir, Log: logger})
	tooMany, most, vfs := node.Member("nvidia.com/gpu.shared", device.GPU),
		node.Member("nvidia.com/gpu", device.GPU), node.Member("nvidia.com/vf", device.VF)
	all := shared(device.MaxDevices)
	tooMany.Publish(shared(device.MaxDevices + 1))
	most.Publish(all)
	vfs.Publish(device.Announcement{
		Devices: []device.Device{{ID: "vf", Address: topology.Address{Bus: 2}, Healthy: true}},
	})
	for _, m := range []*Member{tooMany, most, vfs} {
		m.AwaitTaken(t.Context())
	}
	await(t, runDir, connected("nvidia.com/gpu", "nvidia.com/vf"))
	if strings.Count(log.String(), "16385 devices of nvidia.com/gpu.shared, more than 16384") != 1 ||
		strings.Count(log.String(), "lost the coordination server") > 0 {
		t.Errorf("log:\n%s", log)
	}
	ids := make([]string, 0, len(all.Devices))
	for _, d := range all.Devices {
		ids = append(ids, d.ID)
	}
	for len(ids) > 0 {
		n := min(len(ids), 512)
		if _, err := node.membership.client.Allocated(t.Context(), &api.AllocatedRequest{
			Resource: "nvidia.com/gpu", Devices: ids[:n],
		}); err != nil {
			t.Fatal(err)
		}
		ids = ids[n:]
	}
	stopFirst()
	answer := await(t, runDir, connected("nvidia.com/gpu", "nvidia.com/vf"))
	if got := len(held(answer.GetResources())); got != device.MaxDevices {
		t.Errorf("%d devices are held, want %d", got, device.MaxDevices)
	}
	if strings.Count(log.String(), "renamed an unusable saved state") > 0 {
		t.Error("the checkpoint is too long to be read")
	}
}

// TestRefusedAnnouncement: what a server refuses it would refuse again.
func TestRefusedAnnouncement(t *testing.T) {
	panicked := system.Survive(slog.New(slog.DiscardHandler), func() error { panic("on purpose") })
	for err, soon := range map[error]bool{
		status.Error(codes.Unavailable, "the server went"):                      true,
		status.Error(codes.InvalidArgument, "5000 devices, more than 4096"):     false,
		status.Error(codes.ResourceExhausted, "there are 64 resources already"): false,
		status.Error(codes.Unimplemented, "another protocol"):                   false,
		panicked: false,
	} {
		if got := joinPause(err); got < electionPause != soon {
			t.Errorf("after %v the server is asked again in %s", err, got)
		}
	}
}
