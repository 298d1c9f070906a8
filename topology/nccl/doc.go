// SPDX-License-Identifier: Apache-2.0

// Package nccl reads and writes topology files of NCCL and RCCL (NCCL_TOPO_FILE; src/graph/xml.cc of NCCL).
// A topology file lists the PCI functions below each switch of each NUMA node. Cloud providers such as Azure
// ship topology files for guests with a flat PCI tree:
//
//	<system version="1">
//	  <cpu numaid="0" affinity="…" arch="x86_64" …>
//	    <pci busid="ffff:ff:01.0" class="0x060400" …>       a switch; here hidden from the guest
//	      <pci busid="0001:00:00.0" class="0x030200" …/>    a GPU; NCCL's own dumps add <gpu>
//	      <pci busid="0101:00:00.0" class="0x020700" …/>    a NIC; NCCL's own dumps add <nic> with <net>
//
// The version of a file of RCCL is 2. [Read] reads the elements system, cpu (numaid) and pci (busid) and,
// like NCCL, skips all others.
//
// [File.Apply] moves the functions of a tree to their places in the file. A function stays in place if the
// file does not list it, or if the tree already has all its bridges of the file above it.
//
// [Write] writes a tree as a file. NCCL itself adds <gpu>, <nic>, <net> and the CPU attributes.
package nccl
