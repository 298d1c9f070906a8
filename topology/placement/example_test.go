// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"fmt"

	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// The example of the package comment.
func ExampleChoose() {
	tree, err := machines.Tree("oci-mi300x-derived", 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	devices := func(names ...string) (list []placement.Device) {
		for _, name := range names {
			address, err := topology.ParseAddress(name)
			if err != nil {
				fmt.Println(err)
			}
			list = append(list, placement.Device{ID: name, Address: address})
		}
		return list
	}
	gpus := devices("0000:11:00.0", "0000:2f:00.0", "0000:46:00.0")
	vfs := devices("0000:0c:00.1", "0000:0c:00.2", "0000:2a:00.2")
	taken := devices("0000:2a:00.1", "0000:41:00.1", "0000:41:00.2")
	for _, n := range [][2]int{{1, 0}, {1, 1}, {2, 2}, {2, 3}, {3, 3}} {
		choice, err := placement.Choose(tree, placement.Request{
			GPUs:  []placement.Half{{Count: n[0], Free: gpus}},
			VFs:   []placement.Half{{Count: n[1], Free: vfs}},
			Taken: placement.Devices{VFs: taken},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(choice.Reason)
		for _, g := range choice.GPUs[min(len(choice.Pairs), len(choice.GPUs)):] {
			fmt.Println("  ", g.ID)
		}
		for _, p := range choice.Pairs {
			fmt.Println("  ", p.GPU.ID, p.VF.ID, p.Distance.Level)
		}
	}
	// Output:
	// 1 GPU on 1 switch; 2 same-switch pairs left
	//    0000:46:00.0
	// 1 pair: 1 PIX; VFs on 1 PF; 1 same-switch pair left
	//    0000:11:00.0 0000:0c:00.1 PIX
	// 2 pairs: 2 PIX; VFs on 2 PFs; 0 same-switch pairs left
	//    0000:11:00.0 0000:0c:00.2 PIX
	//    0000:2f:00.0 0000:2a:00.2 PIX
	// 3 pairs: 3 PIX; VFs on 2 PFs; 0 same-switch pairs left
	//    0000:11:00.0 0000:0c:00.1 PIX
	//    0000:2f:00.0 0000:2a:00.2 PIX
	//    0000:11:00.0 0000:0c:00.2 PIX
	// 3 pairs: 2 PIX, 1 NODE; VFs on 2 PFs; 0 same-switch pairs left
	//    0000:11:00.0 0000:0c:00.1 PIX
	//    0000:2f:00.0 0000:2a:00.2 PIX
	//    0000:46:00.0 0000:0c:00.2 NODE
}
