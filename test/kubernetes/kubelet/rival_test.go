// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
	"github.com/tandem-k8s/tandem/topology"
)

// A plugin of somebody else's offers the GPUs too, before Tandem or after it, and goes. Whether or not its
// devices have the same IDs, and whatever its socket is called: the node has all its GPUs again, without
// anybody's help.
func TestRival(t *testing.T) {
	for _, c := range []struct {
		name   string
		same   bool   // IDs
		socket string // of the rival
		known  bool   // Tandem can tell that it is there
	}{
		{"devices of its own", false, "any.sock", true},
		{"the same devices", true, "amd.com_gpu", true},
		{"the same devices, another name", true, "any.sock", false},
	} {
		t.Run("last, "+c.name, func(t *testing.T) {
			r := startRig(t, watchedRig)
			wantTold(t, r, true)
			rival := newRival(t, r, c.same, c.socket)
			position := r.Pair.Log.Len()
			rival.run(t, r.KubeletDir())
			if c.known {
				waitLog(t, r, position, "another plugin serves the resource; remove the plugin from this node")
				wantTold(t, r, false)
			}
			position = r.Pair.Log.Len()
			rival.stop()
			// a later one goes on with the same devices as if nothing had happened
			if c.known || node.Version == "1.36" {
				waitRegistered(t, r, position, 1)
			}
			must(t, r.WaitReady(deadline(t)))
			wantTold(t, r, true)
			admitBest(t, r, "after", want{4, 4})
		})
		t.Run("first, "+c.name, func(t *testing.T) {
			r := startRig(t, watchedRig)
			must(t, r.Pair.GPU.Stop())
			rival := newRival(t, r, c.same, c.socket)
			rival.run(t, r.KubeletDir())
			must(t, r.Node.WaitAllocatable(deadline(t), r.GPU, len(rival.devices)))
			position := r.Pair.Log.Len()
			must(t, r.Pair.GPU.Start())
			waitRegistered(t, r, position, 1)
			pod := admitBest(t, r, "beside", want{2, 2})
			registrations := 1
			if node.Version == "1.36" {
				registrations = 2
			}
			rival.stop()
			waitRegistered(t, r, position, registrations)
			wantTold(t, r, true)
			must(t, r.Remove(pod))
			admitBest(t, r, "after", want{8, 8})
		})
	}
}

var watchedRig = rig.Setup{Machine: "oci-mi300x-derived", VFsPerPF: 1, Coordinated: true, Watched: true}

// newRival is a plugin for the GPUs of a rig, which it has under the same IDs or under others.
func newRival(t *testing.T, r *rig.Rig, same bool, socket string) *fakePlugin {
	t.Helper()
	rival := &fakePlugin{resource: r.GPU, devices: fakeDevices("rival", 2), socket: socket}
	if same {
		rival.devices = nil
		for id, nodes := range r.Node.Inventory(r.GPU) {
			rival.devices = append(rival.devices, node.Device(id, true, topology.Node(nodes[0])))
		}
	}
	return rival
}

func waitLog(t *testing.T, r *rig.Rig, position int, message string) {
	t.Helper()
	_, err := r.Pair.Log.Wait(deadline(t), position, func(lines []pair.Line) bool {
		return slices.ContainsFunc(lines, func(line pair.Line) bool { return line.Message == message })
	})
	must(t, err)
}

// wantTold: readiness, metric and doctor tell whether the kubelet goes by the GPUs' daemon.
func wantTold(t *testing.T, r *rig.Rig, registered bool) {
	t.Helper()
	code, text, metric := http.StatusOK, "ok", "1"
	if !registered {
		code, text, metric = http.StatusServiceUnavailable,
			r.GPU+" is not registered with the kubelet: another plugin serves the resource", "0"
	}
	if got, body := get(t, r, "/readyz"); got != code || !strings.HasPrefix(body, text) {
		t.Errorf("/readyz: %d %s, want %d %s", got, body, code, text)
	}
	if _, body := get(t, r, "/metrics"); !strings.Contains(body,
		fmt.Sprintf("tandem_kubelet_registered{resource=%q} %s\n", r.GPU, metric)) {
		t.Errorf("the metric is not %s:\n%s", metric, body)
	}
	var found []string
	for _, f := range doctor.Examine(doctor.Node{
		Sys: r.Sys(), Tree: r.Tree, KubeletDir: r.KubeletDir(), RunDir: r.RunDir(),
	}).Findings {
		if f.ID == "kubelet-devices" || f.ID == "stock-plugin" {
			found = append(found, f.Summary)
		}
	}
	if registered != (len(found) == 0) {
		t.Errorf("registered %t, and the doctor finds %q", registered, found)
	}
}

// get asks the GPUs' daemon that was started last.
func get(t *testing.T, r *rig.Rig, path string) (code int, body string) {
	t.Helper()
	lines, _ := r.Pair.Log.Since(0)
	address := ""
	for _, line := range lines {
		if line.Message == "serving metrics and probes" {
			address = line.Address
		}
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + address + path)
	must(t, err)
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	must(t, err)
	return answer.StatusCode, string(content)
}
