// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/topology"
)

const (
	gpuID      = "0000:11:00.0"
	registered = `"RegisteredDevices":{"amd.com/gpu":["0000:11:00.0"]}},"Checksum":0}`
	gpuFree    = `{"Data":{"PodDeviceEntries":[],` + registered
	gpuHeld    = `{"Data":{"PodDeviceEntries":[{"PodUID":"uid","ContainerName":"c",` +
		`"ResourceName":"amd.com/gpu","DeviceIDs":{"0":["0000:11:00.0"]}}],` + registered
	damaged = `{"Data":`
)

// oneGPU is a node with one GPU.
type oneGPU struct {
	*testing.T
	dir    string
	reader *publish.Reader
	log    *bytes.Buffer
	tree   *topology.Tree
	gpu    device.Device
	before holders.Sources // what the coordinator knows
}

func newOneGPU(t *testing.T, settings string) *oneGPU {
	t.Helper()
	n := &oneGPU{T: t}
	n.dir, n.reader, n.log = kubeletOf(t, nil)
	write(t, filepath.Join(n.dir, "config.yaml"), header+settings)
	n.tree = topology.Assemble(nil, nil, nil)
	n.gpu = device.Device{ID: gpuID, Address: topology.Address{Bus: 0x11}, NUMA: topology.Node(0), Healthy: true}
	return n
}

func (n *oneGPU) record(content string) { write(n.T, kubelet.CheckpointPath(n.dir), content) }

func (n *oneGPU) read() publish.Facts {
	gpus := published.Resource{Name: published.GPUs, Kind: device.GPU, Devices: []device.Device{n.gpu}}
	return n.reader.Read(n.Context(),
		admission.Announced{Tree: n.tree, Resources: published.Announce(gpus), Before: n.before})
}

// wantFree expects that so many GPUs are published as free with a checkpoint, "" for none.
func (n *oneGPU) wantFree(step int, checkpoint, free string) publish.Facts {
	n.Helper()
	if n.record(checkpoint); checkpoint == "" {
		if err := os.Remove(kubelet.CheckpointPath(n.dir)); err != nil {
			n.Fatal(err)
		}
	}
	f := n.read()
	if got := f.Spec.Summary.GPUs; got != free {
		n.Errorf("step %d: free GPUs %s, want %s\n%s", step, got, free, n.log)
	}
	return f
}

// While the checkpoint cannot be read, is missing or has an unknown layout, the devices of pods stay those of
// the last read, marked as such.
func TestUnreadableCheckpointFreesNothing(t *testing.T) {
	n := newOneGPU(t, "topologyManagerPolicy: restricted\n")
	for i, step := range []struct {
		content, free string
		stale         bool
	}{
		{gpuHeld, "0/1", false},
		{damaged, "0/1", true}, {damaged, "0/1", true}, {`null`, "0/1", true}, {`{}`, "0/1", true},
		{`{"V3":{"Allocations":[]},"Checksum":1}`, "0/1", true}, {"", "0/1", true},
		{gpuFree, "1/1", false},
		{damaged, "1/1", true},
	} {
		f := n.wantFree(i, step.content, step.free)
		if f.Unread != nil || (f.Stale != nil) != step.stale {
			t.Errorf("step %d: unread: %v, stale: %v", i, f.Unread, f.Stale)
		}
		if step.stale && !strings.Contains(f.Stale.Error(), kubelet.CheckpointPath(n.dir)) {
			t.Errorf("step %d: %v does not name the file", i, f.Stale)
		}
	}
	if told := strings.Count(n.log.String(), "publishing the last known"); told != 4 {
		t.Errorf("an outage of three kinds, and another one, told %d times:\n%s", told, n.log)
	}
}

// Files that were never read make the assignments unknown, until they can be read: the devices of pods, or
// the CPUs or memory alone. A missing file and one without its keys tell no more than a damaged one.
func TestAssignmentsNeverRead(t *testing.T) {
	const settings = "topologyManagerPolicy: restricted\ncpuManagerPolicy: static\nmemoryManagerPolicy: Static\n"
	const checkpoint = "device-plugins/kubelet_internal_checkpoint"
	files := map[string]string{
		checkpoint:              gpuFree,
		kubelet.CPUStateFile:    `{"policyName":"static","defaultCpuSet":"0-3","checksum":1}`,
		kubelet.MemoryStateFile: `{"policyName":"Static","machineState":{},"checksum":1}`,
	}
	for name, good := range files {
		n := newOneGPU(t, settings)
		for other, content := range files {
			if other != name {
				write(t, filepath.Join(n.dir, other), content)
			}
		}
		file := filepath.Join(n.dir, name)
		for _, content := range []string{"", damaged, "{}", "null", `{"data":` + good + `}`} {
			if content != "" {
				write(t, file, content)
			} else {
				_ = os.Remove(file)
			}
			f := n.read()
			if name == checkpoint != errors.Is(f.Unread, publish.ErrUnread) ||
				!strings.Contains(f.Stale.Error(), file) {
				t.Errorf("%s %q: unread: %v, stale: %v", file, content, f.Unread, f.Stale)
			}
			_, noCPUs := f.CPUs.Get()
			_, noMemory := f.Memory.Get()
			if (noCPUs != nil) != (name == kubelet.CPUStateFile) ||
				(noMemory != nil) != (name == kubelet.MemoryStateFile) {
				t.Errorf("%s %q: CPUs: %v, memory: %v", file, content, noCPUs, noMemory)
			}
		}
		write(t, file, good)
		if f := n.read(); f.Unread != nil || f.Stale != nil {
			t.Errorf("%s: once it can be read: %v, %v", file, f.Unread, f.Stale)
		}
	}
}

// heldByTrain is a node whose GPU the coordinator knows to be held since the first kubelet.
func heldByTrain(t *testing.T) *oneGPU {
	t.Helper()
	n := newOneGPU(t, "topologyManagerPolicy: restricted\n")
	name := kubelet.Pod{Namespace: "team", Name: "train"}
	n.before = holders.Sources{
		Before: holders.Holders{{
			UID: "uid", Pod: name, Name: "c", Devices: kubelet.Devices{"amd.com/gpu": {gpuID}}, Life: "first",
		}},
		Known: map[string]holders.Known{"uid": {Pod: name, Told: true, Life: "first"}},
	}
	return n
}

// A kubelet has started without its records, while the container on the GPU runs: the GPU is free for the
// kubelet, and not for schedulers. A container of the running kubelet that is not in the checkpoint any more
// has ended.
func TestLostRecordsFreeNothing(t *testing.T) {
	n := heldByTrain(t)
	for i, step := range []struct{ life, free string }{{"first", "1/1"}, {"second", "0/1"}} {
		n.before.Life = step.life
		spec := n.wantFree(i, gpuFree, step.free).Spec
		if published := len(spec.Held) == 1 && spec.Held[0].UID == "uid"; published != (step.free == "0/1") {
			t.Errorf("%s kubelet: published holders: %+v", step.life, spec.Held)
		}
	}
	n.before.Known = nil // no list has had the pod
	n.wantFree(2, gpuFree, "1/1")
}

// Of a kubelet without the Pods API nobody lists the pods. A container that the running kubelet had in its
// checkpoint has ended when the checkpoint lacks it, although the coordinator saw it under an earlier
// kubelet.
func TestContainersEndAfterAKubeletStart(t *testing.T) {
	n := heldByTrain(t)
	for i, step := range []struct{ life, content, free string }{
		{"first", gpuHeld, "0/1"},
		{"second", gpuFree, "0/1"}, // without its records
		{"third", gpuHeld, "0/1"}, {"third", gpuFree, "1/1"}, {"third", gpuFree, "1/1"},
		{"fourth", gpuFree, "1/1"},
		{"", gpuHeld, "0/1"}, {"", gpuFree, "0/1"},
	} {
		n.before.Life = step.life
		n.wantFree(i, step.content, step.free)
	}
}
