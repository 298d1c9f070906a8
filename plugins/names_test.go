// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/pairs"
)

// TestNamesOfAPod: a pod with NET_ADMIN renames the netdev or the RDMA device of its VF. The VF keeps the
// name when it returns to the node, and another container gets the VF.
func TestNamesOfAPod(t *testing.T) {
	s := newScene(t, "oci-mi300x-derived", 1,
		allVFs+`, "tandem": {"pairs": true, "variables": ["NCCL_IB_HCA"]}`)
	renamed := []struct{ class, name string }{
		{"net", "renamed"}, {"infiniband", "renamed"}, // the control
		{"net", "ens\xff"}, {"infiniband", "mlx\xff"}, {"infiniband", "x,mlx5_0"},
	}
	addresses := s.vfAddresses(t)
	for i, r := range renamed {
		s.rename(t, addresses[i], r.class, r.name)
	}
	s.begin(t)
	for i, r := range renamed {
		if r.name != "renamed" && s.health[vfs][addresses[i]] != v1beta1.Healthy {
			continue // not offered under such a name
		}
		wrong := s.timely(t, func(attempt int) string {
			s.pods(pending(fmt.Sprintf("pod-%d-%d", i, attempt), onePair))
			return s.wrongPair(t, s.ids[gpus][i], addresses[i])
		})
		switch {
		case wrong == "":
		case r.name == "renamed":
			t.Fatalf("%s device with a plain name: %s", r.class, wrong)
		default:
			t.Errorf("%s device %q: the next container %s", r.class, r.name, wrong)
		}
	}
}

// wrongPair gives the pod a GPU and a VF, and returns what is wrong with the answer and the pairs file.
func (s *scene) wrongPair(t *testing.T, gpu, vf string) string {
	t.Helper()
	s.allocate(t, gpus, []string{gpu}, 1)
	s.prefer(t, vfs, []string{vf}, 1)
	answer, err := s.plugins[vfs].Allocate(t.Context(), vf)
	if err != nil {
		return "gets no VF: " + err.Error()
	}
	if variable := answer.GetEnvs()["NCCL_IB_HCA"]; strings.Contains(variable, ",") {
		return "uses other devices by NCCL_IB_HCA " + variable
	}
	file, err := pairs.Read(answer.GetMounts()[0].GetHostPath())
	if err != nil || len(file.Pairs) != 1 || file.Pairs[0].GPU == nil {
		return fmt.Sprintf("lacks its GPU in the pairs file: %+v, %v", file, err)
	}
	return ""
}
