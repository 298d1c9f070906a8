// SPDX-License-Identifier: Apache-2.0

// Package publish keeps a node's published objects and files up to date.
//
//	plugins' announcements, the kubelet's files          facts.Reader
//	      └─ changed ──> 200 to 300 ms ──> facts         Publisher.Publish
//	                                         ├─> Sink    keep: one goroutine for each
//	                                         └─> Sink
//
// The state is published, not its changes: each write uses the newest facts, so that intermediate changes
// cost no write, and unchanged content is not written. There is no heartbeat. Every five minutes each sink
// compares the published content with the facts, so that an object that was deleted or changed is written
// again.
//
// No other work waits for a sink. A sink that fails is retried after a pause that grows to two minutes. If
// the API server was unreachable, its sinks are retried as soon as a connection succeeds.
package publish
