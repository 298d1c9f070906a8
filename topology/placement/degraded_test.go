// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// degradedRequest asks for pairs of a server of eight GPUs, each with a PF of two VFs on its switch, with the
// devices of some functions degraded.
func degradedRequest(t *testing.T, count int, ill ...string) (*topology.Tree, Request) {
	t.Helper()
	machine, err := machines.Load("oci-mi300x-derived", 2)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := topology.Read(machine.FS())
	if err != nil {
		t.Fatal(err)
	}
	gpus, vfs := Half{Count: count}, Half{Count: count}
	for d := range tree.Devices() {
		one := Device{ID: d.Address.String(), Address: d.Address}
		one.Degraded = slices.Contains(ill, d.Function().String())
		switch {
		case d.IsVF():
			vfs.Free = append(vfs.Free, one)
		case d.Class.IsGPU():
			gpus.Free = append(gpus.Free, one)
		}
	}
	return tree, Request{GPUs: []Half{gpus}, VFs: []Half{vfs}}
}

// TestDegradedLast: a degraded device is chosen only where nothing else is as near, and the reason names it.
func TestDegradedLast(t *testing.T) {
	t.Parallel()
	const first, firstGPU = "0000:0c:00.0", "0000:11:00.0"
	for _, c := range []struct {
		name  string
		count int
		ill   []string
		gpu   string // the first one of the choice
		says  string
	}{
		{"sound", 1, nil, firstGPU, "1 pair: 1 PIX; VFs on 1 PF; 7 "},
		{"PF", 1, []string{first}, "0000:2f:00.0", "1 PF; degraded and not chosen: 0000:0c:00.0; "},
		{"GPU", 1, []string{firstGPU}, "0000:2f:00.0", "1 PF; degraded and not chosen: 0000:11:00.0; "},
		{
			"both", 1, []string{first, firstGPU}, "0000:2f:00.0",
			"degraded and not chosen: 0000:0c:00.0 0000:11:00.0; ",
		},
		{
			"nearness is worth more", 8, []string{first, firstGPU}, firstGPU,
			"8 pairs: 8 PIX; VFs on 8 PFs; chosen although degraded: 0000:0c:00.0 0000:11:00.0; ",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tree, request := degradedRequest(t, c.count, c.ill...)
			got := mustChoose(t, tree, request)
			if got.GPUs[0].ID != c.gpu || !strings.Contains(got.Reason, c.says) {
				t.Errorf("got %v, %s; want %s, %s", got.GPUs, got.Reason, c.gpu, c.says)
			}
		})
	}
}
