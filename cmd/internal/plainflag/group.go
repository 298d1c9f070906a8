// SPDX-License-Identifier: Apache-2.0

package plainflag

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Group is a group of flags on the help page.
type Group int

// The groups, in the order of the help page.
const (
	Request Group = iota
	Placement
	Arrivals
	GPU
	AMD
	NVIDIA
	VF
	DRA
	Machine
	Devices
	Kubelet
	Cluster
	Traffic
	Monitor
	Files
	Output
	Logging
	others // without a heading
)

var headings = [...]string{
	Request: "Request", Placement: "Placement", Arrivals: "Arrivals", GPU: "GPU", AMD: "AMD GPU",
	NVIDIA: "NVIDIA GPU", VF: "VF", DRA: "DRA", Machine: "Machine", Devices: "Devices", Kubelet: "Kubelet",
	Cluster: "Cluster", Traffic: "Traffic", Monitor: "Health and metrics", Files: "Node files", Output: "Output",
	Logging: "Logging",
	others:  "",
}

// groupKey is the annotation of a flag with the heading of its group.
const groupKey = "group"

// Put puts flags of a set into the group.
func (g Group) Put(set *pflag.FlagSet, flags ...string) {
	for _, flag := range flags {
		// The error means an unknown flag, which tests would detect.
		_ = set.SetAnnotation(flag, groupKey, []string{headings[g]})
	}
}

// PutRest puts the flags of a set that are in no group into the group.
func (g Group) PutRest(set *pflag.FlagSet) {
	set.VisitAll(func(f *pflag.Flag) {
		if headingOf(f) == "" {
			g.Put(set, f.Name)
		}
	})
}

func headingOf(f *pflag.Flag) string {
	if headings := f.Annotations[groupKey]; len(headings) > 0 {
		return headings[0]
	}
	return ""
}

// Usages returns the flags of a set for the help page, under the heading of each group. Flags in no group are
// at the end.
func Usages(set *pflag.FlagSet) string {
	var sections []string
	for _, heading := range headings {
		usages := usagesOf(set, heading)
		switch {
		case usages == "":
		case heading != "":
			sections = append(sections, fmt.Sprintf("%s:\n%s", heading, usages))
		case len(sections) > 0:
			sections = append(sections, "Other flags:\n"+usages)
		default:
			sections = append(sections, "Flags:\n"+usages)
		}
	}
	return strings.Join(sections, "\n")
}

// usagesOf returns the flags under a heading.
func usagesOf(set *pflag.FlagSet, heading string) string {
	group := pflag.NewFlagSet("", pflag.ContinueOnError)
	group.SortFlags = set.SortFlags
	set.VisitAll(func(f *pflag.Flag) {
		if headingOf(f) == heading {
			group.AddFlag(f)
		}
	})
	return group.FlagUsages()
}
