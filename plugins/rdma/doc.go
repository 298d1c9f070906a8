// Package rdma offers a node's SR-IOV virtual functions to the kubelet, as the SR-IOV network device plugin
// (k8snetworkplumbingwg/sriov-network-device-plugin, "the stock plugin") does: its config.json, resource
// names, device IDs, environment, device nodes and device-info files are kept to the byte, so that Multus,
// the CNI plugins and pods notice no difference. Where this package does better, the place says so.
//
//	config.json, sysfs ──package pools──▶ []Pool ──▶ VFs ──▶ Plugin ◀──▶ kubelet
//	                                       events ──▲         ▲ ◀──▶ coordination.Member
//	                                                    package grants
//
// Package pools says which devices belong to which resource, package grants what a container gets with them,
// and package sysfs reads what both need of a device. Here is what happens over time: [VFs] has the pools
// found at the start and again whenever the machine changes, and a [Plugin] per resource tells the kubelet
// and the coordinator of them and answers the kubelet. What a container gets is looked up when it gets it,
// since the kernel numbers device nodes anew whenever a driver is bound.
//
// Everything about a device is read below the roots that were passed in. What the stock plugin asks netlink
// for is below /sys too: the link type in net/<netdev>/type, the mode of the eswitch in phys_switch_id and
// phys_port_name of the PF's netdevs, the devlink parameter enable_rdma in the RDMA auxiliary device that it
// stands for, vDPA devices in bus/vdpa. Three things are in no file and are asked for on /sys alone:
// [DefaultRoutes], [DDPProfiles] and [MachineEvents].
//
// Two things have to be known over a restart and are in no file of the kernel's: which devices the kubelet
// was told of, for one of them must not vanish from the list while a container may hold it, and what the
// namespaces of containers hide of the devices in them, for these must still be selected. See memory.go.
package rdma
