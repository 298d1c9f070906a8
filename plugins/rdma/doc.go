// Package rdma offers a node's SR-IOV virtual functions to the kubelet, as the SR-IOV network device plugin
// (k8snetworkplumbingwg/sriov-network-device-plugin, "the stock plugin") does: its config.json, resource
// names, device IDs, environment, device nodes and device-info files are kept to the byte, so that Multus,
// the CNI plugins and pods notice no difference. Where this package does better, the place says so.
//
//	config.json, sysfs ──package pools──▶ []Pool ──▶ VFs ──▶ Plugin ◀──▶ kubelet
//	                                       events ──▲         ▲ ◀──▶ coordination.Member
//	                                                    package grants
//
// It takes the place of the RDMA shared device plugin (Mellanox/k8s-rdma-shared-dev-plugin) too, by its
// config.json: an HCA is then offered as many times as containers may share it. That plugin offers numbers,
// each of which stands for all HCAs of a pool, so that nothing can be placed. Here each device is a replica
// of one HCA, "0000:0c:00.0::3": rdmaHcaMax counts by HCA, a container gets the device nodes of the HCAs that
// it was given alone (of all with tandem.allHCAs), and is told of them in NCCL_IB_HCA and
// PCIDEVICE_<resource>. For the coordinator a replica is a VF whose PF is the HCA.
//
// AMD's network device plugin (ROCm/k8s-network-device-plugin) is made from the stock plugin and is replaced
// with it; package exporter asks what it asks for the health of NICs. One thing that it does is not done:
// unless a resource has disableDeviceConfig, on bare metal it runs "nicctl clear rdma internal queue-pair"
// for every device before a container gets it, and fails the pod where that fails
// (pkg/deviceconfig/deviceConfigClient.go). nicctl is a program of AMD's that goes with a firmware version
// and is in no image of ours; and the queue pairs of a container that ended are gone, as the kernel destroys
// them when its processes close the uverbs device (ib_uverbs_close in drivers/infiniband/core/uverbs_main.c).
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
// stands for, vDPA devices in bus/vdpa. Where the root is /sys, sriovnet reads what SR-IOV makes of a
// function (sysfs.At). Four things are in no file and are asked for on /sys alone: [DefaultRoutes],
// [DDPProfiles], [MachineEvents] and [CheckSharing]; and there alone is [LinkUp].
//
// Two things have to be known over a restart and are in no file of the kernel's: which devices the kubelet
// was told of, for one of them must not vanish from the list while a container may hold it, and what the
// namespaces of containers hide of the devices in them, for these must still be selected. See memory.go.
package rdma
