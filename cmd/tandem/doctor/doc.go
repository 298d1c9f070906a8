// Package doctor looks at a node and says what stands between it and pods whose GPUs and VFs share a switch:
// what it saw, why it matters and how it is put right. It changes nothing but the kubelet's configuration, by
// [Fix], and that only where told.
//
// A [Node] is where to look, an [Examine] goes through the checks, each a function that appends findings.
// Facts about the machine come from the tree, what the kubelet was told from its configuration, drop-ins and
// flags, what it does from the files and sockets below its folder. The verdict about request shapes is the
// Topology Manager's own rule, [hints.Policy.Nodes], with a third demand for the CPUs of a guaranteed pod.
//
// A healthy node has no finding. What cannot be read is a finding of its own ([Unknown]) only where it was to
// be expected. What may not be read is neither damaged nor missing: it is all in one finding, and no fix
// follows from it.
package doctor
