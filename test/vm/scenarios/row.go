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

// Row is a row of the result. Its exported fields and its methods are the columns.
type Row struct {
	Setup, Scenario string
	Problem         string           // the fault; "" for none
	outcome         *cluster.Outcome // of a pod; nil without a pod
	note            string
	took            time.Duration
}

// Kubelet returns the kubelet's verdict.
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

// Saw returns the containers' views, with notes.
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

// Pairs returns the number of pairs on one switch of a container's possible pairs.
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

// Verdict returns the result of tandem verify.
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

// Seconds returns the duration.
func (r Row) Seconds() string {
	took := r.took
	if r.outcome != nil {
		took = r.outcome.Took
	}
	return fmt.Sprintf("%.1f", took.Seconds())
}

// join joins the notes that are not empty.
func join(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(s string) bool { return s == "" }), "; ")
}

// lastLine returns the last line of a program's output, for a note.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
