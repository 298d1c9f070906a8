// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
)

// FuzzMessages sends a server whatever fits on the wire: kinds says which call each message is of. Nothing
// may end the server, and it can always tell its status and write down what the next server reads.
func FuzzMessages(f *testing.F) {
	encode := func(m proto.Message) []byte {
		content, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		return content
	}
	one := func(id, address string) *api.Device { return &api.Device{Id: id, Address: address, Healthy: true} }
	gpu := encode(&api.Announcement{
		Resource: gpus, Kind: "gpu", Devices: []*api.Device{one("g", "0000:11:00.0"), one("h", "0000:2f:00.0")},
	})
	vf := encode(&api.Announcement{
		Resource: vfs, Kind: "vf", Devices: []*api.Device{one("v", "0000:0c:00.1"), one("w", "0000:2a:00.1")},
	})
	ask := encode(&api.PreferRequest{Resource: gpus, Available: []string{"g", "h"}, Size: 1})
	add := encode(&api.PreferRequest{
		Resource: gpus, Available: []string{"g", "h"}, MustInclude: []string{"g"}, Size: 2,
	})
	take := encode(&api.AllocatedRequest{Resource: gpus, Devices: []string{"g"}})
	f.Add([]byte{0, 0, 1, 2}, gpu, vf, ask, take)
	f.Add([]byte{0, 2, 1, 3}, gpu, take, add, encode(&api.ExplainRequest{Namespace: "team", Pod: "pod"}))
	f.Add([]byte{2, 0, 2, 1}, take, gpu, take, ask)
	f.Fuzz(func(t *testing.T, kinds, a, b, c, d []byte) {
		pod := kubelet.Pod{Namespace: "team", Name: "pod"}
		view := kubelet.View{
			Pods:       []kubelet.Pod{pod},
			Containers: map[kubelet.Container]kubelet.Devices{{Pod: pod, Name: "c"}: {gpus: {"h"}, vfs: {"v"}}},
		}
		dir := t.TempDir()
		coordinator, err := admission.New(admission.Config{
			RunDir: dir, Log: slog.New(slog.DiscardHandler), MayList: true,
			Machine: constantNode{}, Kubelet: constantNode{view: view}, Pods: constantNode{},
		})
		if err != nil {
			t.Fatal(err)
		}
		s := &nodeServer{
			calls:       make(system.Turn, maxCalls),
			coordinator: coordinator, remarks: remarks{&Config{}, &intent.Sources{}},
			log: slog.New(slog.DiscardHandler),
		}
		for i, message := range [][]byte{a, b, c, d} {
			if i < len(kinds) {
				s.take(t, kinds[i], message)
			}
		}
		if _, err := s.Status(t.Context(), nil); err != nil {
			t.Error(err)
		}
		done, cancel := context.WithCancel(t.Context())
		cancel()
		if err := coordinator.Save(done); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, admission.StateFile)); err != nil {
			t.Error(err)
		}
	})
}

// take lets one message in as gRPC does.
func (s *nodeServer) take(t *testing.T, kind byte, message []byte) {
	switch kind % 4 {
	case 0:
		m := new(api.Announcement)
		if proto.Unmarshal(message, m) == nil {
			_ = s.announce(&joined{}, m)
		}
	case 1:
		m := new(api.PreferRequest)
		if proto.Unmarshal(message, m) != nil {
			return
		}
		if answer, err := s.Prefer(t.Context(), m); err == nil && len(answer.GetDevices()) != int(m.GetSize()) {
			t.Errorf("asked for %v, got %v", m, answer)
		}
	case 2:
		m := new(api.AllocatedRequest)
		if proto.Unmarshal(message, m) == nil {
			_, _ = s.Allocated(t.Context(), m)
		}
	case 3:
		m := new(api.ExplainRequest)
		if proto.Unmarshal(message, m) == nil {
			_, _ = s.Explain(t.Context(), m)
		}
	}
}

// constantNode is a machine and a kubelet that never change.
type constantNode struct{ view kubelet.View }

func (constantNode) Refresh(device.Announcement) error { return nil }

func (constantNode) Newest() *topology.Tree { return new(topology.Tree) }

func (constantNode) Life() string { return "" }

func (constantNode) Checkpoint() (none kubelet.Checkpoint, err error) { return none, nil }

func (constantNode) Granted() ([]kubelet.Granted, error) { return nil, fs.ErrNotExist }

func (n constantNode) List(context.Context) (kubelet.View, error) { return n.view, nil }

func (n constantNode) Get(context.Context, kubelet.Pod) (kubelet.View, error) { return n.view, nil }

func (constantNode) CPUs(context.Context) (topology.CPUSet, map[int]topology.CPUSet, error) {
	return nil, nil, nil
}

func (constantNode) TopologyManager() (none model.TopologyManager, err error) {
	return none, kubelet.ErrNotRead
}

func (constantNode) Pods(context.Context) (none intent.Answer, err error) {
	return none, kubelet.ErrNotRead
}

// The API server takes annotations of any bytes from a client that speaks protobuf. Names of devices in them
// keep nobody from an explanation, and reach nobody as they are.
func TestTenantTextInDecisions(t *testing.T) {
	for _, text := range []string{"GPU-\xff", "GPU-\x1b[2J", "GPU-\u202e"} {
		dir := filepath.Join(shortDir(t), "run")
		pod := corev1.Pod{Spec: wanting(gpus), ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "train", UID: "u", Annotations: map[string]string{intent.DevicesKey: text},
		}}
		_, member, _ := join(t, Config{
			RunDir: dir, Intent: intent.Config{
				Choice: intent.Choice{intent.PodsAPI}, Policy: intent.Policy{Choose: intent.AllNamespaces},
				Readers: map[intent.Source]intent.Reader{
					intent.PodsAPI: func(context.Context) ([]corev1.Pod, error) { return []corev1.Pod{pod}, nil },
				},
			},
		}, gpus, oneGPU, gpus)
		choose(t, member, []string{"gpu0"}, nil, 1)
		all, err := Explain(t.Context(), dir, "", "", "")
		if err != nil || len(all.GetDecisions()) != 1 {
			t.Fatalf("%q: %v, %v", text, all, err)
		}
		known := all.GetDecisions()[0].GetKnown()
		if !strings.Contains(known, "team/train/worker wants") || strings.Contains(known, text) {
			t.Errorf("%q: known is %q", text, known)
		}
	}
}
