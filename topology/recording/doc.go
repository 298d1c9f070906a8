// SPDX-License-Identifier: Apache-2.0

// Package recording turns what Tandem reads of a machine's sysfs into one text file and back, without loss.
// Such a file makes a machine of another place a test, and a bug report one that can be replayed.
//
//	# tandem machine v1
//	# Comments stand here only: what machine this is and where it comes from.
//	[bus/pci/devices]
//	0000:08:00.0 -> ../../../devices/pci0000:07/0000:07:00.0/0000:08:00.0
//	[devices/pci0000:07/0000:07:00.0/0000:08:00.0]
//	class = 0x060400
//	driver -> ../../../../bus/pci/drivers/pcieport
//	[devices/virtual/kfd/kfd/topology/nodes/2]
//	name = ""
//	properties =
//		cpu_cores_count 0
//		simd_count 1216
//	[module/amdgpu/drivers]
//	pci:amdgpu -> ../../../bus/pci/drivers/amdgpu
//	end 10 entries
//
// A line in brackets names a directory, and the lines below it what it holds: files with = and links with ->.
// The directories on the way to it go without saying, so a line in brackets with nothing below it is an empty
// directory. A value is the text of a line that ends in a newline, several such lines are indented by a tab,
// and anything else is quoted as in Go. Names that hold anything but letters, digits and the punctuation
// usual in sysfs are quoted too. The last line counts all lines that name something, so that a file cut short
// is noticed.
//
// Links are relative and lead up first and then down, as all of sysfs does, and never above the root. So
// nothing in a machine file can reach outside the folder it is laid out in.
//
// A machine has limits (limits.go), which sysfs is far from: whoever made a file, reading it takes a bounded
// time and memory.
//
// [Capture] records a list of files and no more. It keeps no MAC address, GUID, serial number or host name.
package recording
