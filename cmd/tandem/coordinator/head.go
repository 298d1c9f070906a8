// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"fmt"
	"io"
	"strings"
)

// head is a line of totals, then the plugins, then what is not as it should be.
func (s Status) head(w io.Writer) {
	parts := s.summary()
	fmt.Fprintf(w, "%s; %s\n", strings.Join(parts[:len(parts)-1], ", "), parts[len(parts)-1])
	for _, p := range s.Plugins {
		pid := "in another PID namespace"
		if p.PID != 0 {
			pid = fmt.Sprint("PID ", p.PID)
		}
		version := cmp.Or(p.Version, "version ?")
		if s.isDRA() {
			fmt.Fprintf(w, "mode dra: the scheduler allocates; driver %s, %s, protocol %s: %s\n", pid, version,
				p.Protocol, strings.Join(p.Resources, ", "))
			continue
		}
		fmt.Fprintf(w, "plugin %s, %s, %s, protocol %s: %s\n", pid, p.Role, version, p.Protocol,
			s.registrations(p.Resources))
	}
	for _, r := range s.Resources {
		if !r.Connected {
			fmt.Fprintf(w, "STALE %s: its plugin is away; %s as they were known last\n", r.Name,
				Several(len(r.Devices), "device"))
		}
	}
	if k := s.Kubelet; k != nil && k.State == KubeletDown {
		fmt.Fprintf(w, "KUBELET DOWN: %s; owners are those known last\n", k.Why)
	}
	if text := s.Alignment.Unenforced(); text != "" {
		fmt.Fprintln(w, "NOT ENFORCED", text)
	}
	for _, note := range s.Notes {
		fmt.Fprintln(w, "NOTE", note)
	}
	for _, d := range s.Degraded {
		fmt.Fprintln(w, "DEGRADED", d)
	}
	for _, text := range s.Unsound() {
		fmt.Fprintln(w, "HEALTH", text)
	}
}

// summary is the totals, then the kubelet.
func (s Status) summary() []string {
	t := s.Totals
	return []string{
		fmt.Sprintf("GPUs free %s", t.GPUs), fmt.Sprintf("VFs free %s", t.VFs),
		fmt.Sprintf("same-switch pairs left %d", t.Pairs), fmt.Sprintf("degraded containers %d", len(s.Degraded)),
		"kubelet " + s.kubeletText(),
	}
}

func (s Status) kubeletText() string {
	switch {
	case s.Kubelet == nil || s.Kubelet.State == KubeletUnknown:
		return "?"
	default:
		return s.Kubelet.State
	}
}

// registrations says of each resource whether the kubelet goes by it.
func (s Status) registrations(resources []string) string {
	said := map[string]string{}
	for _, r := range s.Resources {
		switch {
		case r.Registered == nil:
			said[r.Name] = "registered ?"
		case *r.Registered:
			said[r.Name] = "registered"
		default:
			said[r.Name] = "NOT REGISTERED"
		}
	}
	var list []string
	for _, name := range resources {
		list = append(list, name+" "+cmp.Or(said[name], "registered ?"))
	}
	return strings.Join(list, ", ")
}
