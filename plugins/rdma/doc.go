// SPDX-License-Identifier: Apache-2.0

// Package rdma offers a node's SR-IOV virtual functions to the kubelet as a replacement of the SR-IOV network
// device plugin (k8snetworkplumbingwg/sriov-network-device-plugin, "the stock plugin"). Its config.json,
// resource names, device IDs, environment variables, device nodes and device-info files are identical to the
// byte, so that Multus, CNI plugins and pods need no change. Comments name the places with improved
// behaviour.
//
//	config.json, sysfs ──package pools──▶ []Pool ──▶ VFs ──▶ Plugin ◀──▶ kubelet
//	                                       events ──▲         ▲ ◀──▶ coordination.Member
//	                                                    package grants
//
// It also replaces the RDMA shared device plugin (Mellanox/k8s-rdma-shared-dev-plugin), with that plugin's
// config.json: an HCA is offered once for each container that may share it. That plugin offers numbers, each
// of which stands for all HCAs of a pool, so that placement is impossible. Here each device is a replica of
// one HCA, "0000:0c:00.0::3": rdmaHcaMax applies to each HCA, a container gets the device nodes only of its
// HCAs (of all HCAs with tandem.allHCAs), and NCCL_IB_HCA and PCIDEVICE_<resource> list its HCAs. For the
// coordinator a replica is a VF whose PF is the HCA.
//
// AMD's network device plugin (ROCm/k8s-network-device-plugin) is a fork of the stock plugin and is replaced
// as well; health.NICHealth reads the health of NICs from the same source. One function is omitted: unless a
// resource has disableDeviceConfig, on bare metal AMD's plugin runs "nicctl clear rdma internal queue-pair"
// for every device before a container gets the device, and fails the pod if that fails
// (pkg/deviceconfig/deviceConfigClient.go). nicctl belongs to a firmware version and is not in Tandem's
// image, and the kernel destroys the queue pairs of an ended container when its processes close the uverbs
// device (ib_uverbs_close in drivers/infiniband/core/uverbs_main.c).
//
// Package pools reads the facts about devices and assigns the devices to resources, package grants determines
// the container's access to its devices. Package rdma handles changes over time: [VFs] computes the pools at
// the start and after each change of the machine, and a [Plugin] for each resource reports them to the
// kubelet and the coordinator and answers the kubelet. A device's access is computed at the time of Allocate,
// because the kernel renumbers device nodes when a driver is bound.
//
// All facts about a device are read below the roots passed in. The facts that the stock plugin reads from
// netlink are also below /sys: the link type in net/<netdev>/type, the eswitch mode in phys_switch_id and
// phys_port_name of the PF's netdevs, the devlink parameter enable_rdma in the corresponding RDMA auxiliary
// device, vDPA devices in bus/vdpa. If the root is /sys, sriovnet reads the SR-IOV facts of a function
// (pools.SRIOVAt). Four facts are in no file and are read only if the root is /sys: [DefaultRoutes],
// [DDPProfiles], [MachineEvents] and [CheckSharing]; [LinkUp] works only there as well.
//
// Two facts must survive a restart and are in no file of the kernel: the devices reported to the kubelet,
// because a device must not vanish from the list while a container may hold it, and the properties of devices
// that container namespaces hide, because selectors still need them. See memory.go.
package rdma
