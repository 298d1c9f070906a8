// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/coordination"
)

// allVFs selects the VFs of a recorded machine.
const allVFs = `"selectors": {"vendors": ["15b3"], "isRdma": true}`

// TestAllocateAfterLostQuestion: the kubelet asks for the devices of pod a, rejects the pod without an
// Allocate that reaches the coordinator, and allocates devices for pod b without a question.
func TestAllocateAfterLostQuestion(t *testing.T) {
	s := newScene(t, "oci-mi300x-derived", 1, allVFs)
	s.begin(t)
	holder := running("holder", map[string]string{vfs: "8"})
	s.record(t, held("holder", vfs, s.ids[vfs]...))
	for name, given := range map[string]string{"the same GPU": s.ids[gpus][0], "another GPU": s.ids[gpus][1]} {
		if wrong := s.timely(t, func(attempt int) string {
			a, b := fmt.Sprintf("a-%d-%d", len(name), attempt), fmt.Sprintf("b-%d-%d", len(name), attempt)
			s.pods(holder, required(a, onePair))
			s.prefer(t, gpus, s.ids[gpus][:1], 1)
			s.pods(holder, pending(b, map[string]string{gpus: "1"}))
			if _, err := s.plugins[gpus].Allocate(t.Context(), given); err != nil {
				return "is refused: " + err.Error()
			}
			return s.differs(t, a) + s.differs(t, b, given)
		}); wrong != "" {
			t.Errorf("pod b, with %s: %s", name, wrong)
		}
	}
}

// differs compares the devices of a pod by the history of decisions.
func (s *scene) differs(t *testing.T, pod string, want ...string) string {
	t.Helper()
	answer, _ := coordination.Explain(t.Context(), s.runDir, "team", pod, "") // an error for no decision
	var ids []string
	for _, d := range answer.GetDecisions() {
		ids = append(ids, d.GetAllocated()...)
	}
	if !slices.Equal(ids, want) {
		return fmt.Sprintf("explain %s: %v, want %v; ", pod, ids, want)
	}
	return ""
}

// TestKubeletThatHasJustStarted: a kubelet that starts adds its pods one by one, and GET /pods shows the
// pods added so far. The kubelet admits a pending pod while a running one is not in the list.
func TestKubeletThatHasJustStarted(t *testing.T) {
	s := newScene(t, "oci-mi300x-derived", 1, allVFs)
	s.serveHTTPS(t)
	s.begin(t)
	holder := running("holder", map[string]string{vfs: "8"})
	wanted := func(number int, others ...corev1.Pod) string {
		available := s.ids[gpus][:4] // on one NUMA node
		taken := s.nearest(t, available[0], s.ids[vfs])
		s.record(t, held("holder", vfs, taken))
		s.pods(append(others, pending(fmt.Sprint("waited", number), onePair))...)
		if gpu := s.prefer(t, gpus, available, 1)[0]; gpu == available[0] {
			return fmt.Sprintf("GPU %s is chosen, whose VF %s is not offered", gpu, taken)
		}
		return ""
	}
	if wrong := s.timely(t, func(attempt int) string { return wanted(attempt, holder) }); wrong != "" {
		t.Fatalf("with the whole list: %s", wrong)
	}
	s.kubelet.Recreate()
	s.await(t)
	s.await(t)
	if wrong := s.timely(t, func(attempt int) string { return wanted(10 + attempt) }); wrong != "" {
		t.Errorf("while the list lacks the holder of a VF: %s", wrong)
	}
}

// TestForgedMirror: the checkpoint still has a pod that has ended, and the annotation of another pod
// claims that it is the mirror of that pod.
func TestForgedMirror(t *testing.T) {
	s := newScene(t, "oci-mi300x-derived", 1, allVFs)
	s.begin(t)
	available := s.ids[gpus][:4] // on one NUMA node
	s.record(t, held("ended", vfs, s.nearest(t, available[0], s.ids[vfs])))
	forger := running("forger", map[string]string{vfs: "1"})
	forger.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "any", UID: "n"}}
	choose := func(attempt int) string {
		s.pods(forger, pending(fmt.Sprintf("pod-%d-%d", len(forger.Annotations), attempt), onePair))
		if gpu := s.prefer(t, gpus, available, 1)[0]; gpu != available[0] {
			return fmt.Sprintf("GPU %s is chosen, as if the ended pod held the VF of %s", gpu, available[0])
		}
		return ""
	}
	if wrong := s.timely(t, choose); wrong != "" {
		t.Fatalf("without an annotation: %s", wrong)
	}
	forger.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "ended"}
	if wrong := s.timely(t, choose); wrong != "" {
		t.Errorf("with the annotation: %s", wrong)
	}
}

// serveHTTPS serves the pods at a kubelet's HTTPS server, in place of the Pods API.
func (s *scene) serveHTTPS(t *testing.T) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/pods" {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(corev1.PodList{Items: *s.living.Load()})
	}))
	t.Cleanup(server.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	s.write(t, "kubelet.crt", string(certificate))
	s.write(t, "token", "token")
	s.flags = append(s.flags, "--intent=kubelet", "--kubelet-address="+server.Listener.Addr().String(),
		"--kubelet-ca-file="+s.path("kubelet.crt"), "--kubelet-cert-file="+s.path("kubelet.crt"),
		"--kubelet-token-file="+s.path("token"))
}

// TestKubeletLostItsRecords: the kubelet starts without its checkpoint, and offers the devices of running
// containers.
func TestKubeletLostItsRecords(t *testing.T) {
	s := newScene(t, "oci-mi300x-derived", 1, allVFs)
	s.begin(t)
	oneGPU := map[string]string{gpus: "1"}
	s.pods(running("a", oneGPU), running("b", oneGPU))
	taken := s.ids[gpus][:2]
	s.record(t, held("a", gpus, taken[0]), held("b", gpus, taken[1]))
	until(t, "the coordinator knows the holders", func() bool { return s.allocatedGPUs(t) == 2 })
	chooses := func(available []string) func(attempt int) string {
		return func(attempt int) string {
			s.pods(running("a", oneGPU), running("b", oneGPU), pending(fmt.Sprint("c", attempt), oneGPU))
			if gpu := s.prefer(t, gpus, available, 1)[0]; slices.Contains(taken, gpu) {
				return "the GPU of a running container is chosen, " + gpu
			}
			return ""
		}
	}
	if wrong := s.timely(t, chooses(s.ids[gpus][2:])); wrong != "" {
		t.Fatal(wrong)
	}
	s.kubelet.Recreate()
	s.await(t)
	s.await(t)
	s.record(t)
	if wrong := s.timely(t, chooses(s.ids[gpus])); wrong != "" {
		t.Errorf("with 6 others free: %s", wrong)
	}
}

// allocatedGPUs returns how many GPUs containers hold by the status.
func (s *scene) allocatedGPUs(t *testing.T) (count int) {
	t.Helper()
	for _, r := range s.status(t).GetResources() {
		for _, d := range r.GetDevices() {
			if r.GetName() == gpus && d.GetAllocated() {
				count++
			}
		}
	}
	return count
}
