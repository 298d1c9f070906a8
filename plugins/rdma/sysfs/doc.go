// Package sysfs reads what the topology tree does not hold of a PCI function: single files, vDPA devices, and
// what SR-IOV makes of it, see [SRIOV]. What cannot be read is an empty value, never an error that ends a
// discovery. Everything is read below the root that is passed in, on a live node too: these files say the
// same as netlink, which would tell of the wrong machine anywhere else. Of SR-IOV a live node is asked by
// sriovnet, which knows no other root than /sys.
package sysfs
