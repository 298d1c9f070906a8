// SPDX-License-Identifier: Apache-2.0

// Package nccl reads and writes the topology files of NCCL and RCCL (NCCL_TOPO_FILE; src/graph/xml.cc of
// NCCL): which PCI functions are below which switches of which NUMA node. Clouds give such a file to guests
// whose PCI tree is flat, Azure for one:
//
//	<system version="1">
//	  <cpu numaid="0" affinity="…" arch="x86_64" …>
//	    <pci busid="ffff:ff:01.0" class="0x060400" …>       a switch; here one that the guest does not see
//	      <pci busid="0001:00:00.0" class="0x030200" …/>    a GPU; NCCL's own dumps have <gpu> in it
//	      <pci busid="0101:00:00.0" class="0x020700" …/>    a NIC; NCCL's own dumps have <nic> with <net> in it
//
// Read takes of it the elements system, cpu with numaid, and pci with busid; like NCCL it passes over all
// others. [File.Apply] puts the functions of a tree where the file has them. What it does not name stays
// where sysfs has it, and so does what it names below a bridge that sysfs shows above it too: then both say
// the same, and sysfs says more.
//
// [Write] makes a file of a tree. NCCL adds to it what it finds out itself: <gpu>, <nic>, <net>, the CPUs.
package nccl
