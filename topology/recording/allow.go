// SPDX-License-Identifier: Apache-2.0

package recording

// The lists below name all files that Capture records, besides config and vpd. Each element of a pattern is a
// path.Match pattern for one path element. A directory that matches a whole pattern is recorded without its
// content.

// pciPatterns are relative to the directory of each PCI function (Documentation/ABI/testing/sysfs-bus-pci,
// sysfs-class-net, sysfs-class-infiniband and, for the AMD files, Documentation/gpu/amdgpu).
var pciPatterns = []string{
	"class", "vendor", "device", "subsystem_vendor", "subsystem_device", "acpi_index",
	"numa_node",
	"current_link_speed", "current_link_width", "max_link_speed", "max_link_width",
	"driver", "iommu_group", "physfn", "virtfn*", // links
	"sriov_totalvfs", "sriov_numvfs",
	"net", "net/*",
	"net/*/type", "net/*/carrier", "net/*/operstate", "net/*/speed", "net/*/phys_port_name",
	"net/*/phys_switch_id",
	"virtio*/net/*", "virtio*/net/*/type", "virtio*/net/*/carrier", "virtio*/net/*/operstate",
	"virtio*/net/*/speed",
	"infiniband", "infiniband/*",
	"infiniband/*/ports/*/state", "infiniband/*/ports/*/phys_state", "infiniband/*/ports/*/link_layer",
	"infiniband/*/ports/*/rate", "infiniband/*/ports/*/pkeys/0",
	"infiniband_verbs/uverbs*", "infiniband_verbs/uverbs*/ibdev",
	"infiniband_mad/umad*", "infiniband_mad/umad*/ibdev", "infiniband_mad/umad*/port",
	"infiniband_mad/issm*", "infiniband_mad/issm*/ibdev", "infiniband_mad/issm*/port",
	"infiniband_cm/ucm*", "infiniband_cm/ucm*/ibdev",
	"*.rdma.*", "*.roce.*", "*.iwarp.*", // auxiliary devices for RDMA
	"*.sf.*", "*.sf.*/sfnum", "*.sf.*/net/*", "*.sf.*/net/*/type", "*.sf.*/*.rdma.*", // sub-functions
	"*.sf.*/infiniband/*", "*.sf.*/infiniband_verbs/uverbs*", "*.sf.*/infiniband_verbs/uverbs*/ibdev",
	"drm/card*", "drm/card*/dev", "drm/renderD*", "drm/renderD*/dev",
	"current_compute_partition", "current_memory_partition", "mem_info_vram_total",
}

// machinePatterns are relative to the root.
var machinePatterns = []string{
	"devices/platform/amdgpu_xcp*",
	"devices/platform/amdgpu_xcp*/drm/card*", "devices/platform/amdgpu_xcp*/drm/card*/dev",
	"devices/platform/amdgpu_xcp*/drm/renderD*", "devices/platform/amdgpu_xcp*/drm/renderD*/dev",
	"devices/system/node/online", "devices/system/node/node*/cpulist", "devices/system/node/node*/distance",
	"devices/virtual/kfd/kfd/topology/system_properties",
	"devices/virtual/kfd/kfd/topology/nodes",
	"devices/virtual/kfd/kfd/topology/nodes/*/properties",
	"devices/virtual/kfd/kfd/topology/nodes/*/gpu_id",
	"devices/virtual/kfd/kfd/topology/nodes/*/name",
	"devices/virtual/kfd/kfd/topology/nodes/*/io_links/*/properties",
	"devices/virtual/kfd/kfd/topology/nodes/*/p2p_links/*/properties",
	"kernel/iommu_groups/*", "kernel/iommu_groups/*/name",
	"module/amdgpu", "module/amdgpu/version", "module/amdgpu/drivers/*",
}

// linkDirs are directories of links. Capture records links with recorded targets.
var linkDirs = []string{
	"bus/pci/drivers/*",
	"class/drm", "class/infiniband", "class/infiniband_cm", "class/infiniband_mad", "class/infiniband_verbs",
	"class/kfd", "class/net",
}
