// SPDX-License-Identifier: Apache-2.0

// Package sysfs reads facts about a PCI function that the topology tree does not contain: single files, vDPA
// devices, and SR-IOV facts, see [SRIOV]. A fact that cannot be read is an empty value, never an error that
// ends discovery. All facts are read below the root passed in, on a live node as well: these files have the
// same content as netlink, which works only for the local machine. On a live node SR-IOV facts come from
// sriovnet, which supports only /sys.
package sysfs
