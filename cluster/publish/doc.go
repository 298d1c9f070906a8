// SPDX-License-Identifier: Apache-2.0

// Package publish keeps up to date what a node publishes of itself.
//
//	plugins' announcements, the kubelet's files          facts.Reader
//	      └─ changed ──> 200 to 300 ms ──> facts         Publisher.Publish
//	                                         ├─> Sink    keep: one goroutine for each
//	                                         └─> Sink
//
// The state is published, not its changes: whoever writes takes the newest facts there are, so that what came
// in between costs no write, and nothing is written that is there already. There is no heartbeat. Every five
// minutes each sink compares what is there with the facts, so that an object that somebody has deleted or
// changed is written again.
//
// Nobody waits for it. A sink that fails is tried again after a pause that grows to two minutes. One whose
// API server could not be reached is tried again as soon as a connection to it can be made.
package publish
