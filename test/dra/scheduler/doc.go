// Package scheduler is the part of Kubernetes' scheduler that gives claims their devices: its own structured
// allocator, around which this package keeps what it is called with. A [Node] has the ResourceSlices that a
// driver publishes; a [Scheduler] has the classes, allocates claims and knows which devices are taken.
//
// Which version of Kubernetes it is, is decided when the tests are built: the module has the newest,
// files go.v1.34.mod to go.v1.36.mod others, each with a build tag of its name (kubernetes134 …). [Minor] tells.
package scheduler
