// SPDX-License-Identifier: Apache-2.0

// Package topology reads the places of a node's PCI devices and the distances between them.
//
// A [Tree] is read from a sysfs root ([Read]) and never changes; call Read again to see a change. A tree
// contains all PCI functions with the chain of bridges, the NUMA node and, for network functions, PF, VFs,
// netdevs and RDMA devices.
//
//	pci0000:07                     root complex (host bridge)
//	└─ 0000:07:00.0                root port
//	   └─ 0000:08:00.0             switch, upstream port
//	      ├─ 0000:09:00.0          switch, downstream port
//	      │  └─ 0000:0c:00.0       NIC, a PF; its VFs 0000:0c:00.1 … have the same chain
//	      └─ 0000:09:01.0          switch, downstream port
//	         └─ 0000:0f:00.0       bridge on the GPU's own card
//	            └─ 0000:10:00.0    bridge on the GPU's own card
//	               └─ 0000:11:00.0 GPU
//
// # Distance
//
// [Tree.Distance] returns the levels of "nvidia-smi topo -m": [PIX], [PXB], [PHB], [NODE], [SYS], and [UNK]
// for an unknown distance; and [C2C], for which nvidia-smi has NODE. A bridge that leads to a single card
// belongs to the card and is ignored in the comparison of two chains. In the example 0000:09:01.0,
// 0000:0f:00.0 and 0000:10:00.0 lead only to the GPU, and 0000:09:00.0 leads only to the NIC. For both
// devices the first shared bridge is therefore 0000:08:00.0, and the level is PIX. Without this rule no GPU
// with a bridge of its own (MI250, MI300X) would be near a NIC, although only one switch chip is between the
// devices.
//
// # Complexes
//
// On machines with Grace or Vera, and with NICs that have a PCIe switch, the chains of a GPU and of its NIC
// do not tell their distance. [Tree.Complexes] returns these sets of GPUs and NICs with the reason:
//
//   - A NIC with a DMA function has the place of the function (VPD keyword V3, common to both), with its
//     switch and NUMA node, or its own place if a GPU is nearer there than any GPU at the function.
//   - A GPU on a root port of Grace or Vera is C2C to the ConnectX NICs of its NUMA node. Two GPUs or two
//     NICs have the distance of their chains.
//   - A NIC and GPUs below the switch of the NIC have the distance of their chains. Their ports may redirect
//     traffic that takes no detour (ACS Direct Translated P2P).
//
// A complex with a fault changes no distance.
//
// # Cards
//
// A card is the content of a slot: all functions with the same domain, bus and device number, and the VFs of
// its PFs with any numbers.
//
// The package uses only the standard library and package capability, starts no goroutine and writes no log.
package topology
