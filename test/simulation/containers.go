// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	kubeletmodel "github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/test/model"
)

// containers are the containers of a pod, whose text is "side:sidecar:2gpu+1vf,c0:app".
type containers []intent.Container

var (
	roles = map[string]kubeletmodel.Role{
		"app": kubeletmodel.App, "init": kubeletmodel.Init, "sidecar": kubeletmodel.Sidecar,
	}
	units = map[string]string{"gpu": model.GPUs, "vf": model.VFs}
)

// String returns the text.
func (all *containers) String() string {
	texts := make([]string, 0, len(*all))
	for _, c := range *all {
		parts := []string{c.Name}
		for name, role := range roles {
			if role == c.Role {
				parts = append(parts, name)
			}
		}
		var requests []string
		for _, unit := range slices.Sorted(maps.Keys(units)) {
			if n := c.Requests[units[unit]]; n > 0 {
				requests = append(requests, fmt.Sprint(n, unit))
			}
		}
		if len(requests) > 0 {
			parts = append(parts, strings.Join(requests, "+"))
		}
		texts = append(texts, strings.Join(parts, ":"))
	}
	return strings.Join(texts, ",")
}

// Set parses the text.
func (all *containers) Set(value string) error {
	for text := range strings.SplitSeq(value, ",") {
		parts := strings.Split(text, ":")
		if len(parts) < 2 {
			return fmt.Errorf("parse container %q: no role", text)
		}
		role, known := roles[parts[1]]
		if !known {
			return fmt.Errorf("parse container %q: the role is unknown", text)
		}
		c := intent.Container{Name: parts[0], Role: role, Requests: map[string]int{}}
		if len(parts) > 2 {
			for request := range strings.SplitSeq(parts[2], "+") {
				resource, n, err := parseRequest(request)
				if err != nil {
					return fmt.Errorf("parse container %q: %w", text, err)
				}
				c.Requests[resource] = n
			}
		}
		*all = append(*all, c)
	}
	return nil
}

// parseRequest parses a request, as "2gpu".
func parseRequest(text string) (resource string, n int, err error) {
	for unit, resource := range units {
		if number, found := strings.CutSuffix(text, unit); found {
			n, err := strconv.Atoi(number)
			return resource, n, err
		}
	}
	return "", 0, fmt.Errorf("%q has no unit", text)
}

// Namespaces of pods.
const (
	usual = "team"
	other = "other"
)

// podOf returns the pod of an arrival.
func podOf(e Event) *model.Pod {
	name := kubelet.Pod{Namespace: cmp.Or(e.Namespace, usual), Name: e.Name}
	p := &model.Pod{Pod: name, Alignment: e.Alignment}
	for _, c := range e.Containers {
		p.Containers = append(p.Containers,
			&model.Container{Name: c.Name, Role: model.Role(c.Role), Requests: maps.Clone(c.Requests)})
	}
	return p
}

// arrivalOf returns the arrival of a pod.
func arrivalOf(p *model.Pod) Event {
	e := Event{Kind: podArrives, Name: p.Name, Alignment: p.Alignment}
	if p.Namespace != usual {
		e.Namespace = p.Namespace
	}
	for _, c := range p.Containers {
		e.Containers = append(e.Containers,
			intent.Container{Name: c.Name, Role: kubeletmodel.Role(c.Role), Requests: c.Requests})
	}
	return e
}
