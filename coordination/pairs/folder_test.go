// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
)

// A file that is written again after a boot has the names of the container's own devices: the tree has those
// of a function, and none of a sub-function of that function.
func TestNamesInRestoredFile(t *testing.T) {
	t.Parallel()
	tree, all := firstPair(t)
	at := all[0]
	for _, d := range all {
		if d.Kind == device.VF {
			at = d
		}
	}
	own, _ := tree.Device(at.Address)
	for id, want := range map[string]string{
		at.ID: own.RDMA[0], topology.ReplicaID(at.ID, 3): own.RDMA[0], "mlx5_core.sf.4": "",
	} {
		dir := t.TempDir()
		name := filepath.Join(dir, "container.json")
		d := at
		d.ID = id
		NewFolder(system.Disk{}, dir, slog.New(slog.DiscardHandler)).Tidy(tree,
			[]kubelet.Granted{{Container: "pod/main", Mounts: []string{name}}}, kubelet.Identity{}, nil,
			func(kubelet.Devices) []Device { return []Device{d} })
		read, err := Read(name)
		if err != nil || len(read.Pairs) != 1 || read.Pairs[0].VF.RDMA != want {
			t.Errorf("%s: %+v, %v; want the RDMA device %q", id, read, err, want)
		}
	}
}
