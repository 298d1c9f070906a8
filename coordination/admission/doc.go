// Package admission decides which devices a container gets that the kubelet is admitting.
//
// # One decision
//
// A question is read, decided and committed. What it needs to know is read first, without a lock: the
// kubelet's checkpoint, PodResources, what the pods want, the CPUs (Coordinator.read). Then the decision is
// made, from that and from a copy of the state, and reads nothing else but the clock (deciding.choose). It
// becomes the state of all in one step, unless the asker has gone or something was allocated since the
// question was read: then it is read again (Coordinator.decide). The log, the observer and files come after
// that. An Allocate goes the same way (Coordinator.Allocated). So nobody sees half of a decision, nothing is
// locked while something is read or written, and whoever only looks (Status, Explain, the checkpoint) looks
// at the state that was committed last.
//
// # What is known
//
// A decision has four steps, each a pure function of what was read: who holds what (package holders), which
// container asks (package asking), which devices are free for it (books.go, usable in request.go), and the
// choice (package placement). Nothing is kept that the kubelet's own records tell. A state (state.go) has
// what plugins have announced, the own Allocates that the kubelet has not written down yet, the names of
// pods, the last look, what is planned for the container that asks (plan.go), and what the container of the
// newest Allocate was given. The last two are often of one container, and need not be: the kubelet can ask
// for the next one first.
//
// A device that another pod has at that moment, as PodResources Get confirms, is refused in Allocate with a
// sentence (refusal.go): the kubelet can hand one out twice (kubernetes PR 137534). Where the kubelet cannot
// confirm it (Get is on from 1.34) the container gets the device and the log has an error.
//
// A plan is kept for the half that was not asked. It is replaced by the next question, since the kubelet
// admits one container at a time, and expires by itself.
//
// # Who is asking
//
// The kubelet does not say: package asking finds out, from the kubelet's checkpoint, PodResources and what
// the pods want. Where the container is known the first question is answered for all that it wants, one half
// for each resource name, and what it does not want is not planned for (wanted.go). The same tells whom the
// kubelet gives devices without a question, what a scheduler chose, and whether the pod is to be refused when
// its pairs cannot be on one switch each (refusal.go). And where VFs have no NUMA node, the CPUs that the
// container is to have alone say which one its GPUs will be on (read.go).
//
// PodResources List is read inside GetPreferredAllocation, and never while an Allocate of either plugin is
// open, which can make the kubelet hand a device out twice (package inflight). Where the checkpoint proves
// that the second half is asked for which the plan of the first one foresees, neither it nor a source of
// intent is asked again, and the choice of the first half stands (read.go, prefer.go).
//
// # What outlives a process
//
// What makes an admission in progress go on is written to <run-dir>/coordinator.json after every change, by a
// goroutine of its own (kept.go, package store). A file that is damaged, of another version or not ours alone
// is set aside as coordinator.json.bad; without one the kubelet tells who holds what. The ledger.json of an
// earlier version is removed.
//
// The last 256 decisions are kept in memory, for "tandem explain" (package history). Whoever counts them is
// told when they are committed (observer.go). People are told of devices as free once their containers have
// ended, which the kubelet is asked about (status.go). A look changes nothing.
//
// # What a container is told
//
// A container can ask for its pairs in a file (package pairs). The RDMA plugin mounts it with the VFs in it;
// the coordinator adds the GPUs before it answers the Allocated that completes the container, in whichever
// order the halves come (pairs.go). The kubelet's checkpoint keeps the mount for as long as the container
// lives, so the files are tidied by it.
package admission
