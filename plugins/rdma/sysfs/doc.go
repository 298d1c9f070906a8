// Package sysfs reads what the topology tree does not hold of a PCI function: single files, vDPA devices, the
// port of a PF, partition keys. What cannot be read is an empty value, never an error that ends a discovery.
// Everything is read below the root that is passed in, on a live node too: these files say the same as
// netlink, which would tell of the wrong machine anywhere else.
package sysfs
