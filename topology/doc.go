// SPDX-License-Identifier: Apache-2.0

// Package topology knows where PCI devices sit on a node and how far apart two of them are.
//
// A [Tree] is read once from a sysfs root ([Read]) and never changes; read again to see a change. It holds
// every PCI function with its chain of bridges, its NUMA node and, for network functions, PF, VFs, netdevs
// and RDMA devices.
//
//	pci0000:07                     root complex (host bridge)
//	└─ 0000:07:00.0                root port
//	   └─ 0000:08:00.0             switch, upstream port
//	      ├─ 0000:09:00.0          switch, downstream port
//	      │  └─ 0000:0c:00.0       NIC, a PF; its VFs 0000:0c:00.1 … hang on the same chain
//	      └─ 0000:09:01.0          switch, downstream port
//	         └─ 0000:0f:00.0       bridge on the GPU's own card
//	            └─ 0000:10:00.0    bridge on the GPU's own card
//	               └─ 0000:11:00.0 GPU
//
// # Distance
//
// [Tree.Distance] speaks the words of "nvidia-smi topo -m": [PIX], [PXB], [PHB], [NODE], [SYS], and [UNK]
// where it cannot be told. Bridges that carry a single card belong to that card: they are skipped before two
// chains are compared. Above, 0000:09:01.0, 0000:0f:00.0 and 0000:10:00.0 carry the GPU alone and
// 0000:09:00.0 the NIC alone, so for both the first bridge that counts is 0000:08:00.0 and they are PIX.
// Without this rule no GPU with a bridge of its own (MI250, MI300X) would ever be near a NIC, although
// nothing but one switch chip lies between them.
//
// A card is what fills a slot: all functions with the same domain, bus and device number, and the VFs of
// those that are PFs, wherever the VFs' own numbers lie.
//
// The package uses the standard library only, starts no goroutine and writes no log.
package topology
