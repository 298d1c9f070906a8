// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// static is a configuration with exclusive CPUs and memory.
const static = "topologyManagerPolicy: restricted\ncpuManagerPolicy: static\nmemoryManagerPolicy: Static\n"

// Files that were never read make the assignments unknown, until they can be read: the devices of pods, or
// the CPUs or memory alone. A missing file and one without its keys tell no more than a damaged one. While a
// file cannot be read again, what it said last stays.
func TestAssignmentsNeverRead(t *testing.T) {
	const checkpoint = "device-plugins/kubelet_internal_checkpoint"
	files := map[string]string{
		checkpoint: gpuHeld, kubelet.CPUStateFile: cpuState, kubelet.MemoryStateFile: memoryState,
	}
	for name, good := range files {
		n := newOneGPU(t, static)
		for other, content := range files {
			write(t, filepath.Join(n.dir, other), content)
		}
		file := filepath.Join(n.dir, name)
		unreadable := func(check func(content string, f publish.Facts)) {
			for _, content := range []string{"", damaged, "{}", "null", `{"data":` + good + `}`} {
				if write(t, file, content); content == "" {
					if err := os.Remove(file); err != nil {
						t.Fatal(err)
					}
				}
				f := n.read()
				if f.Stale == nil || !strings.Contains(f.Stale.Error(), file) {
					t.Errorf("%s %q: stale: %v", file, content, f.Stale)
				}
				check(content, f)
			}
		}
		unreadable(func(content string, f publish.Facts) {
			if name == checkpoint != errors.Is(f.Unread, publish.ErrUnread) {
				t.Errorf("%s %q: unread: %v", file, content, f.Unread)
			}
			_, noCPUs := f.CPUs.Get()
			_, noMemory := f.Memory.Get()
			if (noCPUs != nil) != (name == kubelet.CPUStateFile) ||
				(noMemory != nil) != (name == kubelet.MemoryStateFile) {
				t.Errorf("%s %q: CPUs: %v, memory: %v", file, content, noCPUs, noMemory)
			}
		})
		write(t, file, good)
		known := n.read()
		if known.Unread != nil || known.Stale != nil {
			t.Errorf("%s: once it can be read: %v, %v", file, known.Unread, known.Stale)
		}
		unreadable(func(content string, f publish.Facts) {
			if f.Unread != nil || !reflect.DeepEqual(f.CPUs, known.CPUs) ||
				!reflect.DeepEqual(f.Memory, known.Memory) {
				t.Errorf("%s %q: %v, CPUs %v, memory %v; want %v, %v", file, content, f.Unread, f.CPUs, f.Memory,
					known.CPUs, known.Memory)
			}
			if diff := cmp.Diff(known.Spec, f.Spec); diff != "" {
				t.Errorf("%s %q is published (-before +after):\n%s", file, content, diff)
			}
		})
	}
}

// TestManagerNeverRead: the daemon of a node may lack the kubelet's folder, with the files of its managers.
// The devices are published, nobody learns of CPUs and memory that any are free, and people are told.
func TestManagerNeverRead(t *testing.T) {
	files := map[string]string{kubelet.CPUStateFile: cpuState, kubelet.MemoryStateFile: memoryState}
	for missing := range files {
		synctest.Test(t, func(t *testing.T) {
			n, s := newNode(t, "a"), newServer("a")
			write(t, filepath.Join(n.kubeletDir, kubelet.ConfigFile), header+static)
			for name, content := range files {
				if name != missing {
					write(t, filepath.Join(n.kubeletDir, name), content)
				}
			}
			publisher := n.publisher(t, s)
			defer run(t, publisher, n)()
			wait(t, time.Second)
			if got := s.at(topologyOf("a"), "spec", "summary", "gpus"); got != "8/8" {
				t.Errorf("GPUs %v, want 8/8", got)
			}
			node, _ := s.at(topologyOf("a"), "spec", "numaNodes").([]any)[0].(map[string]any)
			cpus, memory := node["cpus"] != nil, node["memory"] != nil
			if cpus != (missing != kubelet.CPUStateFile) || memory != (missing != kubelet.MemoryStateFile) {
				t.Errorf("NUMA node %v", node)
			}
			if notes := strings.Join(publisher.Notes(), "\n"); !strings.Contains(notes, missing) {
				t.Errorf("notes %s do not name %s", notes, missing)
			}
		})
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

// tell calls each with every pod.
func tell(pods []corev1.Pod, err error, each func(*corev1.Pod)) error {
	for i := range pods {
		each(&pods[i])
	}
	return err
}

// TestGone: a pod of the checkpoint holds nothing if the kubelet lists it as ended, or no longer, and none of
// its containers runs. Without the kubelet's list no pod is gone.
func TestGone(t *testing.T) {
	tree := topology.Assemble(nil, nil, nil)
	dir := t.TempDir()
	var list []corev1.Pod
	var listErr error
	r := publish.NewReader(publish.Config{
		Sys: empty(), KubeletDir: dir, Log: slog.New(slog.DiscardHandler),
		Pods: func(_ context.Context, each func(*corev1.Pod)) error { return tell(list, listErr, each) },
	})
	gpus := published.Announce(published.Resource{Name: published.GPUs, Kind: device.GPU})
	var given []published.Entry
	running := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	for uid, status := range map[types.UID]corev1.PodStatus{
		"comes": {}, "waits": {Phase: corev1.PodPending}, "runs": {Phase: corev1.PodRunning},
		"done": {Phase: corev1.PodSucceeded}, "refused": {Phase: corev1.PodFailed},
		"evicted": {Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{running}},
	} {
		list = append(list, corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: status})
		given = append(given, published.Give(string(uid), "main", published.GPUs, string(uid)))
	}
	given = append(given, published.Give("deleted", "main", published.GPUs, "x"))
	if err := published.WriteCheckpoint(dir, given...); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		err  error
		want publish.Gone
	}{
		{kubelet.ErrNoPodsAPI, publish.Gone{}},
		{errors.New("Kubelet is initializing"), publish.Gone{}},
		{nil, publish.Gone{"done": true, "refused": true, "deleted": true}},
	} {
		listErr = test.err
		got := r.Read(t.Context(), admission.Announced{Tree: tree, Resources: gpus})
		if diff := cmp.Diff(test.want, got.Gone); diff != "" || len(got.Spec.Held) != len(given) {
			t.Errorf("%v: %d pods have devices, gone (-want +got):\n%s", test.err, len(got.Spec.Held), diff)
		}
	}
}

// TestExclusive: a pod with exclusive resources counts from its start until it is gone.
func TestExclusive(t *testing.T) {
	tree := topology.Assemble(nil, nil, nil)
	started := corev1.PodStatus{Phase: corev1.PodRunning}
	guaranteed := started
	guaranteed.QOSClass = corev1.PodQOSGuaranteed
	var pods []corev1.Pod
	for name, is := range map[string]struct {
		status corev1.PodStatus
		asks   corev1.ResourceName
		much   string
	}{
		"device":       {started, published.GPUs, "1"},
		"in admission": {corev1.PodStatus{Phase: corev1.PodPending}, published.GPUs, "1"},
		"ended":        {corev1.PodStatus{Phase: corev1.PodSucceeded}, published.GPUs, "1"},
		"cpu":          {guaranteed, corev1.ResourceCPU, "2"},
		"part of one":  {guaranteed, corev1.ResourceCPU, "1500m"},
		"shared":       {started, corev1.ResourceCPU, "2"},
		"memory":       {guaranteed, corev1.ResourceMemory, "1Gi"},
		"huge pages":   {guaranteed, "hugepages-2Mi", "4Mi"},
		"disk":         {guaranteed, corev1.ResourceEphemeralStorage, "1Gi"},
		"attached":     {started, "attachable.kubernetes.io/disks", "1"},
	} {
		pods = append(pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Status: is.status,
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "idle"}, {Name: "main"}}},
		})
		pods[len(pods)-1].Spec.Containers[1].Resources.Requests = corev1.ResourceList{
			is.asks: resource.MustParse(is.much),
		}
	}
	dir := t.TempDir()
	if err := published.WriteCheckpoint(dir); err != nil {
		t.Fatal(err)
	}
	read := func(pods []corev1.Pod, err error) []string {
		r := publish.NewReader(publish.Config{
			Sys: empty(), KubeletDir: dir, Log: slog.New(slog.DiscardHandler),
			Pods: func(_ context.Context, each func(*corev1.Pod)) error { return tell(pods, err, each) },
		})
		var names []string
		exclusive := r.Read(t.Context(), admission.Announced{Tree: tree}).Exclusive
		if (exclusive == nil) != (err != nil) {
			t.Errorf("with error %v these pods are told: %v", err, exclusive)
		}
		for _, pod := range exclusive {
			names = append(names, pod.Name)
		}
		slices.Sort(names)
		return names
	}
	want := []string{"cpu", "device", "ended", "huge pages", "memory"}
	if diff := cmp.Diff(want, read(pods, nil)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	read(nil, nil) // an empty list differs from no list
	read(pods, errors.New("not now"))
}
