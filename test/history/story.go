// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Story returns the events in plain words, one event per line.
func (h History) Story() string {
	var text strings.Builder
	for _, e := range h.Events {
		fmt.Fprintln(&text, e)
	}
	return text.String()
}

// String returns the event in plain words.
func (e Event) String() string {
	at := fmt.Sprint(e.Call)
	switch {
	case e.Return == 0:
		at += "-"
	case e.Return != e.Call:
		at += fmt.Sprint("-", e.Return)
	}
	if e.Node != "" {
		at = e.Node + " " + at
	}
	return fmt.Sprintf("%-9s %s", at, e.sentence())
}

func (e Event) sentence() string {
	switch e.Kind {
	case Arrival:
		return fmt.Sprintf("the kubelet begins to admit %s (%s)%v", e.Pod, e.UID, e.Spec)
	case Alignment:
		return fmt.Sprintf("the kubelet chooses %s for %s", numaNodes(e.Nodes), e.name())
	case Question:
		return e.question()
	case Allocation:
		return e.allocation()
	case Verdict:
		return e.verdict()
	case Confirmation:
		return fmt.Sprintf("the kubelet's records show %s with %s", e.name(), devicesText(e.Held))
	case View:
		return "free to Tandem: " + devicesText(e.Free)
	case Release:
		if e.Return == 0 {
			return e.Pod + " ends; the kubelet has not freed the devices"
		}
		return e.Pod + " ends, and the kubelet frees the devices"
	case Killed:
		return "killed: " + e.Text
	case Started:
		return "started: " + e.Text
	case Storm:
		return "faults begin"
	case Calm:
		return "all faults have ended"
	}
	return string(e.Kind) + ": " + e.Text
}

func (e Event) question() string {
	text := "the kubelet asks for " + e.name()
	if o := e.Offer; o != nil {
		text += fmt.Sprintf(": %d of %d %s", o.Size, len(o.Available), e.Resource)
		if len(o.MustInclude) > 0 {
			text += ", with " + words(o.MustInclude)
		}
		text += fmt.Sprintf(" (%s)", words(o.Available))
	}
	switch {
	case e.Return == 0:
		return text + "; no answer"
	case e.Alone:
		return text + "; the plugin answers alone: " + words(e.Devices) + e.remark()
	}
	return text + "; answer: " + words(e.Devices) + e.remark()
}

func (e Event) allocation() string {
	text := fmt.Sprintf("the kubelet allocates %s %s to %s", e.Resource, words(e.Devices), e.name())
	if e.Named != nil {
		text += fmt.Sprintf("; Tandem names %s/%s", e.Named.Pod, e.Named.Container)
	}
	switch {
	case e.Return == 0:
		return text + "; no answer"
	case e.Alone:
		return text + "; the coordinator has no part" + e.remark()
	case e.Refusal != "":
		return text + "; Tandem refuses: " + e.Refusal
	}
	return text + e.remark()
}

func (e Event) verdict() string {
	switch {
	case e.Refusal == "":
		return e.Pod + " is admitted"
	case e.Own:
		return e.Pod + " is rejected by the kubelet: " + e.Refusal
	}
	return e.Pod + " is rejected after a refusal: " + e.Refusal
}

func (e Event) remark() string {
	if e.Text == "" {
		return ""
	}
	return " (" + e.Text + ")"
}

// name returns the full name of the container.
func (e Event) name() string { return e.Pod + "/" + e.Container }

// String returns the requests of the pod.
func (s *Spec) String() string {
	if s == nil {
		return ""
	}
	var text strings.Builder
	if s.Required {
		text.WriteString(", alignment required")
	}
	for _, c := range s.Containers {
		var requests []string
		for _, name := range slices.Sorted(maps.Keys(c.Requests)) {
			requests = append(requests, fmt.Sprint(c.Requests[name], " ", name))
		}
		fmt.Fprintf(&text, "; %s requests %s", c.Name, or(strings.Join(requests, " and "), "nothing"))
	}
	return text.String()
}

func numaNodes(nodes []int) string {
	if len(nodes) == 0 {
		return "all NUMA nodes"
	}
	return "NUMA nodes " + strings.Trim(fmt.Sprint(nodes), "[]")
}

func devicesText(devices map[string][]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		parts = append(parts, name+" "+words(devices[name]))
	}
	return or(strings.Join(parts, ", "), "no devices")
}

// words returns sorted words of a list.
func words(list []string) string {
	return or(strings.Join(slices.Sorted(slices.Values(list)), " "), "none")
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
