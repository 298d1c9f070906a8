// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/cluster"
)

// Row is one line of the result. Its exported fields and its methods are the columns.
type Row struct {
	Setup, Scenario string
	Problem         string           // what is wrong; "" for nothing
	outcome         *cluster.Outcome // of a pod; nil for what is no pod
	note            string
	took            time.Duration
}

// Kubelet is what the kubelet did.
func (r Row) Kubelet() string {
	switch {
	case r.outcome == nil:
		return ""
	case r.outcome.Reason != "":
		return "refused: " + r.outcome.Reason
	default:
		return "admitted"
	}
}

// Saw is what the containers saw, and what is to be said beside it.
func (r Row) Saw() string {
	var parts []string
	if r.outcome != nil {
		for _, v := range r.outcome.Containers {
			parts = append(parts, addresses("GPUs", v.GPUs)+addresses("VFs", v.VFs))
		}
	}
	if r.outcome != nil && r.outcome.Reason != "" {
		parts = append(parts, strings.TrimSpace(r.outcome.Message))
	}
	return join(append(parts, r.note)...)
}

// addresses lists the last elements of paths.
func addresses(what string, paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	list := []string{"", what}
	for _, path := range paths {
		list = append(list, strings.TrimPrefix(filepath.Base(path), "0000:"))
	}
	return strings.Join(list, " ")
}

// Pairs is how many of the pairs that a container could have are on one switch.
func (r Row) Pairs() string {
	var list []string
	if r.outcome != nil {
		for _, v := range r.outcome.Containers {
			if most := min(len(v.GPUs), len(v.VFs)); most > 0 {
				list = append(list, fmt.Sprintf("%d/%d", v.Pairs(), most))
			}
		}
	}
	return strings.Join(list, " ")
}

// Verdict is what tandem verify said.
func (r Row) Verdict() string {
	if r.outcome == nil {
		return ""
	}
	var list []string
	for _, v := range r.outcome.Containers {
		switch {
		case len(v.GPUs) == 0 || len(v.VFs) == 0:
		case v.Verified:
			list = append(list, "verified")
		default:
			list = append(list, "not verified")
		}
	}
	return strings.Join(list, " ")
}

// Seconds is how long it took.
func (r Row) Seconds() string {
	took := r.took
	if r.outcome != nil {
		took = r.outcome.Took
	}
	return fmt.Sprintf("%.1f", took.Seconds())
}

// join puts notes together, those that there are.
func join(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(s string) bool { return s == "" }), "; ")
}

// lastLine is what is noted of what a program printed.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
