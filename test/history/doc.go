// SPDX-License-Identifier: Apache-2.0

// Package history records the events of a node, and judges the events by a sequential model of Tandem's
// promises to users. The campaigns of packages admission and holders, with the model of the kubelet (package
// model), and the emulated nodes of test/vm record with the same [Recorder].
//
// # Model
//
// The state of the model is the owner of each device. An allocation gives devices to a container, and the
// release of a pod frees devices. Questions and verdicts change nothing, but their results must match the
// state. Events have an interval, and take effect at one moment in the interval: [Check] searches for an
// order of all moments in which each result is right (linearizability, by porcupine). For example, a pod
// that ends during a question can be there for the answer or not, but not there again for the next answer.
//
// The search is exponential in the number of simultaneous events. Check therefore judges each node alone,
// and each period between a [Storm] and a [Calm] alone. A period begins with the owners of the period
// before; releases that are not over continue.
//
// # Promises
//
//   - A device has one owner ([TwoOwners]). Tandem names that owner ([Another]), and passes on the devices
//     of the kubelet ([OtherDevices]). Init containers leave their devices to later containers of their pod.
//   - Each question has an answer ([NoAnswer]) within the kubelet's offer ([Contract]). The answer is the
//     best of a state between question and answer: the container can still get pairs as near as with any
//     other devices of the offer ([NotBest]). The judge of pairs is package placement, which its own tests
//     compare with exhaustive search. A device that is free in all these states is free for the answer
//     ([Stuck]).
//   - A pod that requires alignment has all pairs of each container on one switch each, or is rejected
//     ([NotEnforced]).
//   - A device in the kubelet's records, or in an Allocate, has its owner until the pod's end: no answer
//     takes the device for free ([Forgotten], [ForgottenInit]).
//   - No pod is rejected that the kubelet alone would admit, unless the pod requires alignment that its
//     containers cannot have, or the kubelet allocates a device of another container ([Refused]).
//
// # Exemptions
//
// During a storm only [TwoOwners] and [Contract] are valid in simulations ([InStorms]). Reasons for the
// others:
//
//   - A lost question or answer leaves the choice to a plugin, which knows one half of a container:
//     [NoAnswer], [NotBest], [NotEnforced].
//   - After a lost Allocate, a failed read, or a kill without the file of the coordinator nobody has told
//     Tandem of a device or its container: [Forgotten], [ForgottenInit], [Stuck], [Another], and [Refused]
//     for a pod that Tandem takes for another one.
//   - A repeated Allocate has the devices of the first: [OtherDevices].
//
// A calm begins when all faults have ended and Tandem has read all sources since. Exempt in a calm are:
//
//   - [NotBest] for init containers, whose devices are for later containers, and for containers without both
//     GPUs and VFs.
//   - The NUMA nodes in [NotBest]: if a pod ends between the kubelet's choice of NUMA nodes and the answer,
//     the answer can also be the best on the nodes that the kubelet would choose now. Tandem computes the
//     nodes from devices that are free at the question, and the kubelet has used a former state.
//   - [NotEnforced] until a restarted kubelet has listed all pods: annotations are unknown.
//   - With names alone ([Rules.Names]): [NotEnforced], the container's name in [Another], and [NotBest] for
//     a container with other numbers of GPUs and VFs, with a resource that the kubelet allocated without a
//     question, or with devices of init containers. PodResources shows none of these.
//   - Promises of [Rules.Exempt] for the whole history, and of [Event.Exempt] for an event and later events
//     of its pod: callers give the reason next to their list.
package history
