// SPDX-License-Identifier: Apache-2.0

// Package recording converts the part of a machine's sysfs that Tandem reads to a text file, and back without
// loss. Machine files serve as test fixtures and make bug reports reproducible.
//
//	# tandem machine v1
//	# Only the head has comments: the name of the machine and its origin.
//	[bus/pci/devices]
//	0000:08:00.0 -> ../../../devices/pci0000:07/0000:07:00.0/0000:08:00.0
//	[devices/pci0000:07/0000:07:00.0/0000:08:00.0]
//	class = 0x060400
//	config = ACS=0x001d
//	driver -> ../../../../bus/pci/drivers/pcieport
//	[devices/virtual/kfd/kfd/topology/nodes/2]
//	name = ""
//	properties =
//		cpu_cores_count 0
//		simd_count 1216
//	[module/amdgpu/drivers]
//	pci:amdgpu -> ../../../bus/pci/drivers/amdgpu
//	end 11 entries
//
// A line in brackets names a directory. The lines below list its files (name = value) and links (name ->
// target). Parent directories are implied; a directory without lines is empty.
//
// A value stands for one line of text with a newline. Several lines of text follow in lines indented by a
// tab. All other content is quoted as in Go, as are names with characters unusual in sysfs. The last line
// contains the number of directories, files and links, so that Parse detects a truncated file.
//
// The files config and vpd of a function have a notation of their own, for the facts that topology reads:
//
//   - config: "ACS=0x001d ATS" are the ACS control register and the presence of ATS; "none" is neither.
//   - vpd: "V3=1 SN=2" are keywords.
//
// [Machine.FS] returns these facts in the format of sysfs. An absent file is unknown: only root reads it.
//
// As in sysfs, links are relative, lead up first and then down, and never above the root. A machine file
// therefore cannot refer to files outside the directory to which its files are copied.
//
// A machine has limits far above those of sysfs, so that Parse needs bounded time and memory for any input.
//
// [Capture] records only the files on its list and these facts, and no MAC address, GUID, serial number or
// host name. Numbers in the order of first use replace identifiers: equal identifiers get the same number,
// and a number tells nothing else of its identifier.
package recording
