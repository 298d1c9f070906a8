// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/test/checkpoint"
	"github.com/tandem-k8s/tandem/test/podsapi"
	"github.com/tandem-k8s/tandem/test/programs"
	"github.com/tandem-k8s/tandem/topology"
)

// scene is a node whose kubelet has the Pods API and no PodResources, and whose tandem-rdma has one
// resource.
type scene struct {
	*node
	tree   *topology.Tree
	living atomic.Pointer[[]corev1.Pod]
	stop   func()                  // ends the Pods API
	held   []checkpoint.Allocation // by admitPair
}

// newScene lays a machine out and starts the kubelet. The fields are those of the resource of VFs.
func newScene(t *testing.T, machine string, vfsPerPF int, fields string) *scene {
	t.Helper()
	s := &scene{node: newNode(t, machine, vfsPerPF), stop: func() {}}
	s.flags = append(s.flags, "--intent=pods-api")
	s.configure(t, fields)
	var err error
	if s.tree, err = topology.Read(os.DirFS(s.path("sys"))); err != nil {
		t.Fatal(err)
	}
	s.living.Store(&[]corev1.Pod{})
	s.servePods(t)
	t.Cleanup(func() { s.stop() })
	return s
}

func (n *node) path(name string) string { return filepath.Join(n.root, name) }

// configure writes the fields of the resource of VFs into the configuration.
func (n *node) configure(t *testing.T, fields string) {
	t.Helper()
	n.write(t, "config.json", `{"resourceList": [{"resourceName": "rdma", `+fields+`}]}`)
}

func (n *node) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(n.path(name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *scene) servePods(t *testing.T) {
	t.Helper()
	stop, err := podsapi.Serve(s.dir, func() []corev1.Pod { return *s.living.Load() })
	if err != nil {
		t.Fatal(err)
	}
	s.stop = stop
}

// begin is runBoth for the rest of the test.
func (s *scene) begin(t *testing.T) {
	t.Helper()
	t.Cleanup(s.runBoth(t))
}

// runOne starts a daemon for a part of a test, and awaits its first list.
func (n *node) runOne(t *testing.T, name string) (stop func()) {
	t.Helper()
	daemon, stop := n.run(t, filepath.Join(programs.Build(t, name), name))
	t.Cleanup(func() { _ = daemon.Process.Kill() }) // if the test fails before stop
	n.await(t)
	return stop
}

// runBoth starts both daemons for a part of a test; they take part in the coordination when it returns.
func (s *scene) runBoth(t *testing.T) (stop func()) {
	t.Helper()
	stopGPU, stopVF := s.runOne(t, "tandem-gpu"), s.runOne(t, "tandem-rdma")
	until(t, "both plugins take part", func() bool { return s.joined(t) == 2 })
	return func() { stopGPU(); stopVF() }
}

// admitPair gives a pod the i-th GPU and the i-th VF, and writes the checkpoint. It returns the pairs file.
func (s *scene) admitPair(t *testing.T, name string, i int) (file string) {
	t.Helper()
	s.pods(append(*s.living.Load(), pending(name, onePair))...)
	gpu := s.allocate(t, gpus, s.ids[gpus][i:i+1], 1)
	vf := s.prefer(t, vfs, s.ids[vfs][i:i+1], 1)
	answer, err := s.plugins[vfs].Allocate(t.Context(), vf...)
	if err != nil || len(answer.GetMounts()) != 1 {
		t.Fatal(answer, err)
	}
	granted := held(name, vfs, vf...)
	if granted.Response, err = proto.Marshal(answer); err != nil {
		t.Fatal(err)
	}
	s.held = append(s.held, held(name, gpus, gpu...), granted)
	s.record(t, s.held...)
	return answer.GetMounts()[0].GetHostPath()
}

// status returns the answer at the coordination socket, nil for none.
func (n *node) status(t *testing.T) *api.StatusResponse {
	t.Helper()
	answer, _ := coordination.Status(t.Context(), n.runDir)
	return answer
}

func (n *node) joined(t *testing.T) (count int) {
	t.Helper()
	for _, r := range n.status(t).GetResources() {
		if r.GetConnected() {
			count++
		}
	}
	return count
}

// function returns the folder of a PCI function.
func (n *node) function(id string) string { return filepath.Join(n.path("sys/bus/pci/devices"), id) }

// rename renames a function's device of a class, "net" or "infiniband".
func (n *node) rename(t *testing.T, id, class, name string) {
	t.Helper()
	devices, err := filepath.Glob(filepath.Join(n.function(id), class, "*"))
	if err != nil || len(devices) != 1 {
		t.Fatal(devices, err)
	}
	if err := os.Rename(devices[0], filepath.Join(filepath.Dir(devices[0]), name)); err != nil {
		t.Fatal(err)
	}
	link := n.path(filepath.Join("sys/class", class, filepath.Base(devices[0])))
	target, err := os.Readlink(link)
	if err == nil {
		err = errors.Join(os.Remove(link),
			os.Symlink(filepath.Join(filepath.Dir(target), name), filepath.Join(filepath.Dir(link), name)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// pods replaces the pods of the kubelet.
func (s *scene) pods(pods ...corev1.Pod) { s.living.Store(&pods) }

// prefer returns the devices that a plugin prefers among some, and allocates nothing.
func (s *scene) prefer(t *testing.T, resource string, available []string, size int) []string {
	t.Helper()
	chosen, err := s.plugins[resource].Prefer(t.Context(), available, nil, size)
	if err != nil || len(chosen) != size {
		t.Fatalf("prefer %d of %s: %v, %v", size, resource, chosen, err)
	}
	return chosen
}

// allocate gives the preferred of some devices to the pod that the kubelet admits.
func (s *scene) allocate(t *testing.T, resource string, available []string, size int) []string {
	t.Helper()
	chosen := s.prefer(t, resource, available, size)
	if _, err := s.plugins[resource].Allocate(t.Context(), chosen...); err != nil {
		t.Fatalf("allocate %v of %s: %v", chosen, resource, err)
	}
	return chosen
}

// timely returns the result of the first of ten attempts without late answers, which a busy machine gives,
// else of the last attempt: a description of what is wrong, or "". The number of an attempt is for the
// names of its pods.
func (s *scene) timely(t *testing.T, try func(attempt int) (wrong string)) (wrong string) {
	t.Helper()
	for attempt := range 10 {
		late := s.lateAnswers(t)
		if wrong = try(attempt); s.lateAnswers(t) == late {
			return wrong
		}
	}
	if wrong == "" {
		t.Fatal("all attempts had late answers")
	}
	return wrong
}

// record writes the kubelet's checkpoint.
func (s *scene) record(t *testing.T, held ...checkpoint.Allocation) {
	t.Helper()
	if err := checkpoint.Write(s.dir, held, s.ids); err != nil {
		t.Fatal(err)
	}
}

// held is an entry of the checkpoint.
func held(pod, resource string, ids ...string) checkpoint.Allocation {
	return checkpoint.Allocation{
		PodUID: pod, Container: "c", Resource: resource, Devices: map[string][]string{"-1": ids},
	}
}

// vfAddresses returns the addresses of the machine's VFs, sorted.
func (s *scene) vfAddresses(t *testing.T) (ids []string) {
	t.Helper()
	for d := range s.tree.Devices() {
		if d.IsVF() {
			ids = append(ids, d.Address.String())
		}
	}
	slices.Sort(ids)
	return ids
}

// nearest returns the device that is on one PCIe switch with a GPU.
func (s *scene) nearest(t *testing.T, gpu string, ids []string) string {
	t.Helper()
	from, err := topology.ParseAddress(gpu)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if to, err := topology.ParseAddress(id); err == nil && s.tree.Distance(from, to).Level.Direct() {
			return id
		}
	}
	t.Fatalf("no device of %v is on a switch with %s", ids, gpu)
	return ""
}
