// SPDX-License-Identifier: Apache-2.0

package bounded

import "time"

// Question is the maximum duration of a kubelet call. The kubelet has no deadline and starts no other pod
// during the call (pkg/kubelet/cm/devicemanager/endpoint.go). Each part of the time lies within the part
// above with less indentation:
//
//	Question        from the kubelet's call to the answer
//	  Alone           time after which the plugin computes its own choice as a fallback
//	  Coordinator     the coordinator's answer; a takeover by the other plugin fits in
//	    Announced       wait for an announcement, if the kubelet already asks for the announced devices
//	    Look            all reads in parallel; usually one millisecond
//	      File            one file, usually a tenth of a millisecond; a hanging disk takes forever
//	      Returned        wait for the report that an open Allocate has returned
//
// The coordinator has the same time for an Allocate. For the pairs file it has Pairs: without an answer the
// container lacks the file, not only the best devices.
const (
	Question    = 100 * time.Millisecond
	Alone       = Question / 2
	Coordinator = Question * 8 / 10
	Announced   = Coordinator - Look
	Look        = Question / 2
	File        = Look / 2
	Returned    = Look / 5
	Pairs       = 4 * Question
)
