// Package rdma offers a node's SR-IOV virtual functions to the kubelet, as the SR-IOV network device plugin
// (k8snetworkplumbingwg/sriov-network-device-plugin, "the stock plugin") does: its config.json, resource names, device IDs,
// environment, device nodes and device-info files are kept to the byte, so that Multus, the CNI plugins and pods notice no
// difference. Where this package does better, the place says so.
//
//	config.json ──ReadConfig──▶ Config ──Finder──▶ Pools ──NewPlugin──▶ Plugin ◀──▶ kubelet
//	                               sysfs ──▲                     Host ──▲      ◀──▶ coordination.Member
//
// A [Pool] is what one resource name stands for. It is made once, at the start. What a container gets with a device, a
// [Host] looks up when it gets it, since the kernel numbers device nodes anew whenever a driver is bound.
//
// Everything about a device is read below the roots that were passed in. The one exception is [DefaultRoutes]. What the
// stock plugin asks netlink for is below /sys too: the link type in net/<netdev>/type, the mode of the eswitch in
// phys_switch_id and phys_port_name of the PF's netdevs (through sriovnet), and the devlink parameter enable_rdma in the
// RDMA auxiliary device that it stands for.
//
// Not here yet: sub-functions (auxNetDevice), vdpaType, ddpProfiles, CDI, and finding VFs that appear after the start.
// A configuration that asks for them is accepted, and a warning says what it does not get.
package rdma
