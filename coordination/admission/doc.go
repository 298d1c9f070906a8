// SPDX-License-Identifier: Apache-2.0

// Package admission chooses the devices of a container that the kubelet is admitting.
//
// # A decision
//
// The coordinator answers a question in three phases, without a lock during I/O:
//
//   - Read: a reader reads the kubelet's checkpoint, PodResources, the pods' requests and the CPUs into an
//     observation (read.go, observation.go).
//   - Decide: a transaction works on a copy of the state and reads only the observation and the clock
//     (answer.go). If the asker is gone, or the state has changed since the read, the question is read again
//     (question.go).
//   - Commit: the copy becomes the state in a single step (committed.go). Log, observer and files follow,
//     from the transaction's report (report.go).
//
// An Allocate takes the same way (allocate.go, grant.go, verdict.go). Readers of the state, such as Status,
// Explain and the saved state, use the last committed state. Queries change nothing.
//
// # The steps
//
// A decision has four steps, each a pure function of values read before:
//
// 1. The holders of devices (package holders). 2. The asking container (package asking). 3. The free devices
// for the container (books.go, newOffer in halves.go). 4. The choice, from a request for package placement
// (request.go, numa.go, chosen.go).
//
// The state (state.go) has no copy of the kubelet's records, only: announced devices, own Allocates missing
// in the kubelet's records so far, names of pods, the last List, and the
// open admission (open.go): the container of the latest call, with the plan for its further devices. The
// kubelet admits containers one after another, so that a call for another container ends the admission, as
// does a pod that the kubelet no longer has.
//
// A plan reserves the second half of a container (plan.go). The next question replaces the plan, since the
// kubelet admits containers serially; an unused plan expires.
//
// # Known requests
//
// Package asking identifies the asking container from the kubelet's checkpoint, PodResources and request
// sources. For a known container the first question is answered for the whole request, with a half for each
// resource. A known container also yields the recipient of an Allocate without a question, the devices chosen
// by a scheduler (chosen.go), and the required alignment (alignment.go). If VFs have no NUMA node, the
// container's exclusive CPUs predict the NUMA node of its GPUs (numa.go).
//
// PodResources List is read only inside GetPreferredAllocation, never during an Allocate of either plugin:
// List could make the kubelet hand out a device twice (package inflight). If the checkpoint proves a second
// half foreseen by the plan, neither List nor a request source is read, and the first choice stands
// (readForeseen in read.go).
//
// # Refusals
//
// Allocate refuses a device held by a different pod, as confirmed by PodResources Get (refusal.go): the
// kubelet can hand out a device twice (kubernetes PR 137534). Without confirmation (Get is available from
// 1.34), the container gets the device, and an error is logged.
//
// # Persistence
//
// The state of admissions in progress is written to <run-dir>/coordinator.json after each change, by a
// separate goroutine (saved.go, package store), with the holders of which the kubelet has lost its records. A
// file with damage, of an unknown version or with wrong permissions is renamed to coordinator.json.bad; without
// the file, the kubelet's records suffice. The ledger.json of an earlier version is removed.
//
// The last 256 decisions are kept in memory for "tandem explain" (package history). Devices of ended
// containers are shown as free, after a survey of the kubelet (survey.go, status.go).
//
// # Pairs files
//
// A container can request a file with its pairs (package pairs). The RDMA plugin mounts the file with the
// VFs; the coordinator adds the GPUs before the answer to the last Allocated of the container, in either
// order of the halves (pairs.go, pairfiles.go). The kubelet's checkpoint keeps the mount for the container's
// lifetime and decides when a file is removed.
package admission
