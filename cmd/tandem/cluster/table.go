// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/tandem-k8s/tandem/cmd/internal/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
)

// Table is for people: the totals, and a line for each node.
func (s Status) Table() []byte {
	var out bytes.Buffer
	var t coordinator.Totals
	answers, degraded := 0, 0
	for _, n := range s.Nodes {
		if n.Status != nil {
			answers++
			t.Add(n.Status.Totals)
			degraded += len(n.Status.Degraded)
		}
	}
	fmt.Fprintf(&out, "%d of %d nodes answer: GPUs free %s, VFs free %s, same-switch pairs left %d, "+
		"degraded containers %d\n\n", answers, len(s.Nodes), t.GPUs, t.VFs, t.Pairs, degraded)
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tMODE\tFREE GPUS\tFREE VFS\tPAIRS LEFT\tDEGRADED\tVERSION\tNOTES")
	for _, n := range s.Nodes {
		columns := n.columns()
		for i, column := range columns {
			columns[i] = cli.Printable(column)
		}
		fmt.Fprintln(w, strings.Join(columns, "\t"))
	}
	w.Flush() // into memory
	return out.Bytes()
}

func (n NodeStatus) columns() []string {
	s := n.Status
	if s == nil {
		return []string{n.Name, "?", "?", "?", "?", "?", "?", "NO ANSWER: " + n.Error}
	}
	return []string{
		n.Name, s.Mode, s.Totals.GPUs.String(), s.Totals.VFs.String(), fmt.Sprint(s.Totals.Pairs),
		fmt.Sprint(len(s.Degraded)), versions(s), notes(s),
	}
}

// versions are those of the programs on a node: one, unless a rollout is under way.
func versions(s *coordinator.Status) string {
	var list []string
	for _, p := range s.Plugins {
		list = append(list, cmp.Or(p.Version, "?"))
	}
	slices.Sort(list)
	return cmp.Or(strings.Join(slices.Compact(list), ","), "?")
}

// notes are what is not as it should be, in short; "tandem status" on the node has it at length.
func notes(s *coordinator.Status) string {
	var list []string
	if s.Kubelet != nil && s.Kubelet.State == coordinator.KubeletDown {
		list = append(list, "kubelet down")
	}
	for _, r := range s.Resources {
		switch {
		case !r.Connected:
			list = append(list, r.Name+" stale (its plugin is away, devices as last known)")
		case r.Registered != nil && !*r.Registered:
			list = append(list, r.Name+" not registered")
		}
	}
	if s.Alignment.Unenforced() != "" {
		list = append(list, "alignment not enforced")
	}
	for _, d := range s.Degraded {
		list = append(list, fmt.Sprintf("%s degraded: kubectl tandem explain %s", d.Container, d.Pod()))
	}
	return cmp.Or(strings.Join(slices.Concat(list, s.Unsound(), s.Notes), "; "), "-")
}
