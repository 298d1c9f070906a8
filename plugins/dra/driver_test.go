// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	healthpb "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/plugins/dra"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/test/apiserver"
)

const machine = "oci-mi300x-derived"

// complete reports whether all devices of eight GPUs with eight VFs each are published.
func complete(devices map[string]resourceapi.Device, counters int) bool {
	return ofType(pool.TypePair)(devices) == 8 && ofType(pool.TypeGPU)(devices) == 8 &&
		ofType(pool.TypeVF)(devices) == 7*8 && counters > 0
}

// TestGates: what is published follows what the API server can do, and nothing is ever published with fields
// that it drops where a dry run tells that before.
func TestGates(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		server apiserver.Features
		notes  []string
	}{
		{apiserver.Features{Version: "v1.37.1", Counters: true, Taints: true}, nil},
		{apiserver.Features{Version: "v1.36.0"}, []string{"DRAPartitionableDevices", "DRADeviceTaints"}},
		{apiserver.Features{Version: "v1.37.1", Taints: true}, []string{"DRAPartitionableDevices"}},
		// somebody switched a gate on
		{apiserver.Features{Version: "v1.34.2+k3s1", Counters: true}, []string{"DRADeviceTaints"}},
	} {
		t.Run(fmt.Sprintf("%+v", test.server), func(t *testing.T) {
			t.Parallel()
			c, n := newCluster(t), newNode(t, machine, 8)
			c.SetFeatures(test.server)
			config, gpus := n.config(c)
			gpus.fallIll("0000:2f:00.0")
			if err := gpusAnew(&config, gpus); err != nil {
				t.Fatal(err)
			}
			config.NoGPUs = "a reason for absent GPUs"
			n.start(config)
			plain := !test.server.Counters
			devices := c.awaitPublished(func(devices map[string]resourceapi.Device, counters int) bool {
				return len(devices) > 0 && (counters == 0) == plain
			})
			ill := map[bool]string{false: "gpu-2f-00-0", true: "gpu-vf-2f-00-0"}[plain]
			_, has := devices[ill]
			if left := !test.server.Taints; has == left {
				t.Errorf("a GPU that is ill is published: %v", has)
			} else if !left && len(devices[ill].Taints) != 1 {
				t.Errorf("taints %v", devices[ill].Taints)
			}
			answer := n.status(t)
			if answer.GetMode() != string(coordination.DRA) || len(answer.GetNotes()) < len(test.notes) {
				t.Errorf("mode %s, notes %q", answer.GetMode(), answer.GetNotes())
			}
			if !slices.Contains(answer.GetNotes(), config.NoGPUs) {
				t.Errorf("notes %q lack the absent GPUs", answer.GetNotes())
			}
			for _, gate := range test.notes {
				if !strings.Contains(strings.Join(answer.GetNotes(), "\n"), "feature gate "+gate+" ") {
					t.Errorf("notes %q lack %s", answer.GetNotes(), gate)
				}
			}
			k := n.register()
			for name, device := range map[string]string{"a": "pair-11-00-0", "b": "gpu-vf-46-00-0"} {
				claim := c.allocate(name, "train-"+name, device)
				if _, wrong := k.prepare(t.Context(), claim); wrong != "" {
					t.Errorf("a claim that was allocated when the cluster could do something else: %s", wrong)
				}
			}
			holders, err := coordination.ReadClaimHolders(dra.PluginDir(n.kubelet), "")
			if err != nil || len(holders) != 4 {
				t.Errorf("claims for two pairs have %v, %v", holders, err)
			}
		})
	}
}

// TestHealth: what falls ill is tainted, and told in the stream; what is well again is neither.
func TestHealth(t *testing.T) {
	t.Parallel()
	c, n := newCluster(t), newNode(t, machine, 8)
	config, gpus := n.config(c)
	n.start(config)
	k := n.register()
	c.awaitPublished(complete)
	stream, err := healthpb.NewDRAResourceHealthClient(k.ClientConn).NodeWatchResources(t.Context(),
		&healthpb.NodeWatchResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	published, _ := c.published()
	for _, ill := range []string{"", "0000:2f:00.0", ""} {
		gpus.fallIll(ill)
		await(t, "the health stream tells of "+ill, func() bool {
			report, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]bool{}
			for _, d := range report.GetDevices() {
				if d.GetDevice().GetPoolName() != nodeName || d.GetHealthCheckTimeoutSeconds() < 30 {
					t.Errorf("%v", d)
				}
				found[d.GetDevice().GetDeviceName()] = d.GetHealth() == healthpb.HealthStatus_UNHEALTHY
			}
			if len(found) != len(published) {
				t.Fatalf("%d devices, want %d", len(found), len(published))
			}
			want := ill != ""
			return found["gpu-2f-00-0"] == want && found["pair-2f-00-0"] == want && !found["pair-11-00-0"]
		})
		c.awaitPublished(func(devices map[string]resourceapi.Device, counters int) bool {
			return complete(devices, counters) && (len(devices["pair-2f-00-0"].Taints) > 0) == (ill != "")
		})
	}
}

// TestNothingNew: what is the same is not written again.
func TestNothingNew(t *testing.T) {
	t.Parallel()
	c, n := newCluster(t), newNode(t, machine, 8)
	config, gpus := n.config(c)
	n.start(config)
	k := n.register()
	c.awaitPublished(complete)
	written := 0
	c.change(func() { written = c.written })
	for range 3 {
		gpus.fallIll() // looked at again, and the same
		if _, wrong := k.prepare(t.Context(), c.allocate("four", "train-0", "pair-11-00-0")); wrong != "" {
			t.Error(wrong)
		}
		apiserver.Remove[*resourceapi.ResourceClaim](c.Server, "team", "four")
	}
	c.change(func() {
		if c.written != written {
			t.Errorf("%d writes", c.written-written)
		}
	})
}

// partly shows some GPUs, and cannot read the others.
type partly struct{ *shown }

func (p partly) Discover() (gpu.Inventory, error) {
	found, err := p.shown.Discover()
	found.Partial = true
	return found, err
}

// TestLostGPU: a GPU that a starting driver cannot read is not gone: the claim stays prepared, with its CDI
// spec. Once all GPUs are read without it, as after a boot, the kubelet is told that the claim is not
// prepared, the spec has no devices, and the status says so, until the GPU is there again.
func TestLostGPU(t *testing.T) {
	t.Parallel()
	c, n := newCluster(t), newNode(t, machine, 8)
	config, gpus := n.config(c)
	stop := n.start(config)
	claim := c.allocate("a", "train-0", "pair-11-00-0")
	if _, wrong := n.register().prepare(t.Context(), claim); wrong != "" {
		t.Fatal(wrong)
	}
	stop()
	gpus.hide("0000:11:00.0")
	for name, find := range map[string]func(*dra.Config) error{
		"no vendor's driver is there": func(config *dra.Config) error { config.GPUs = nil; return nil },
		"a GPU cannot be read":        func(config *dra.Config) error { return gpusAnew(config, partly{gpus}) },
	} {
		config, _ := n.config(c)
		if err := find(&config); err != nil {
			t.Fatal(err)
		}
		stop := n.start(config)
		if names, wrong := n.register().prepare(t.Context(), claim); wrong != "" || len(names) != 1 {
			t.Errorf("%s: the kubelet is told %v, %q", name, names, wrong)
		}
		if len(n.specs()) != 1 {
			t.Errorf("%s: CDI specs %v", name, n.specs())
		}
		stop()
	}
	config, _ = n.config(c)
	if err := gpusAnew(&config, gpus); err != nil {
		t.Fatal(err)
	}
	n.start(config)
	k := n.register()
	names, wrong := k.prepare(t.Context(), claim)
	if !strings.Contains(wrong, "GPU 0000:11:00.0, which is gone") || len(names) > 0 {
		t.Errorf("the kubelet is told %v, %q", names, wrong)
	}
	hasDevices := func() bool { return !strings.Contains(n.spec(claim), `"devices": null`) }
	noted := func() bool { return strings.Contains(strings.Join(n.status(t).GetNotes(), "\n"), "claim team/a") }
	if hasDevices() || !noted() {
		t.Errorf("noted: %t, CDI spec %s", noted(), n.spec(claim))
	}
	gpus.hide("")
	gpus.fallIll() // it looks again
	await(t, "the CDI spec has devices", hasDevices)
	if _, wrong := k.prepare(t.Context(), claim); wrong != "" {
		t.Error(wrong)
	}
	await(t, "it is said no more", func() bool { return !noted() })
}

// TestAdminAccess: a claim with admin access to every device of the driver, such as that of a monitoring pod,
// is prepared, and its container gets each device node once. It owns nothing: the status shows the pod that
// has a GPU as its owner, and a GPU to which there is only admin access as free.
func TestAdminAccess(t *testing.T) {
	t.Parallel()
	c, n := newCluster(t), newNode(t, machine, 1)
	config, _ := n.config(c)
	n.start(config)
	k := n.register()
	published := c.awaitPublished(func(devices map[string]resourceapi.Device, _ int) bool {
		return len(devices) == 24 // GPUs, VFs and pairs
	})
	train := c.allocate("train", "train-0", "gpu-11-00-0")
	watch := c.allocate("watch", "watch-0", slices.Collect(maps.Keys(published))...)
	for i := range watch.Status.Allocation.Devices.Results {
		watch.Status.Allocation.Devices.Results[i].AdminAccess = new(true)
	}
	c.Put(watch)
	for _, claim := range []*resourceapi.ResourceClaim{train, watch} {
		if _, wrong := k.prepare(t.Context(), claim); wrong != "" {
			t.Fatal(claim.Name, wrong)
		}
		if taken, free := n.owner(t, "0000:11:00.0"), n.owner(t, "0000:2f:00.0"); taken != "train-0" || free != "" {
			t.Errorf("with claim %s: owners %q and %q, want train-0 and none", claim.Name, taken, free)
		}
	}
	if node := repeatedNode(t, n.spec(watch)); node != "" {
		t.Errorf("%s is in the CDI spec twice", node)
	}
}

// repeatedNode returns a device node that one device of a CDI spec has twice, "" for none.
func repeatedNode(t *testing.T, text string) string {
	t.Helper()
	var spec struct {
		Devices []struct {
			ContainerEdits struct{ DeviceNodes []struct{ Path string } }
		}
	}
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	for _, d := range spec.Devices {
		seen := map[string]bool{}
		for _, node := range d.ContainerEdits.DeviceNodes {
			if seen[node.Path] {
				return node.Path
			}
			seen[node.Path] = true
		}
	}
	return ""
}

// owner returns the pod that the status shows as the owner of an allocated device, "" for a free one.
func (n *node) owner(t *testing.T, id string) string {
	t.Helper()
	for _, r := range n.status(t).GetResources() {
		for _, d := range r.GetDevices() {
			if d.GetDevice().GetId() == id && d.GetAllocated() {
				return d.GetOwner().GetPod()
			}
		}
	}
	return ""
}
