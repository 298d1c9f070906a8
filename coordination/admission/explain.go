package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/bounded"
	"github.com/tandem-k8s/tandem/coordination/history"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// podName is how people name a pod: the namespace and the container can be left out.
type podName struct{ namespace, pod, container string }

func (n podName) accepts(c kubelet.Container) bool {
	return n.pod == c.Pod.Name && (n.namespace == "" || n.namespace == c.Namespace) &&
		(n.container == "" || n.container == c.Name)
}

func (n podName) String() string {
	if n.namespace == "" {
		return n.pod
	}
	return n.namespace + "/" + n.pod
}

// whole is the name with the container's, for a sentence.
func (n podName) whole() string {
	if n.container != "" {
		return "container " + n.container + " of pod " + n.String()
	}
	return "pod " + n.String()
}

// Explain tells what was decided for a pod; namespace and container can be "", for any. The kubelet is asked
// about it with Get, which frees nothing, so that the newest pod is known too. The error says why there is
// nothing to tell.
func (c *Coordinator) Explain(
	ctx context.Context, namespace, pod, container string,
) ([]*api.Decision, error) {
	return c.explain(ctx, podName{namespace, pod, container})
}

// Recent tells all decisions that are known, the oldest first; those whose container is not known too.
func (c *Coordinator) Recent() []*api.Decision {
	var all []history.Decision
	c.locked(func() { all = c.history.All() })
	answer := make([]*api.Decision, 0, len(all))
	for _, e := range all {
		answer = append(answer, e.Encode())
	}
	return answer
}

func (c *Coordinator) explain(ctx context.Context, name podName) ([]*api.Decision, error) {
	view, known := c.lookAt(ctx, name)
	var found []history.Decision
	var containers []string
	var ours bool
	c.locked(func() {
		c.history.Resolve(view)
		found, containers, ours = c.history.Of(name.accepts), c.containersOf(name, view),
			c.current().shows(view, name.accepts)
	})
	switch {
	case len(found) > 0:
	case len(containers) > 0 && name.container != "" && !slices.Contains(containers, name.container):
		return nil, fmt.Errorf("explain %s: it is none of the containers that are known of this pod: %s",
			name.whole(), strings.Join(containers, ", "))
	default:
		return nil, nothingToTell(name, view, known, ours)
	}
	if name.namespace == "" {
		name.namespace = found[0].Container.Namespace
		for _, e := range found {
			if e.Container.Namespace != name.namespace {
				return nil, fmt.Errorf("explain %s: there is one in %s and one in %s; say NAMESPACE/%[1]s",
					name.pod, name.namespace, e.Container.Namespace)
			}
		}
	}
	answer := make([]*api.Decision, 0, len(found))
	for _, e := range found {
		answer = append(answer, e.Encode())
	}
	return answer, nil
}

// shows reports whether a view shows a device of a resource that the plugins offer with a container that is
// accepted.
func (s *state) shows(view kubelet.View, accepted func(kubelet.Container) bool) bool {
	for container, devices := range view.Containers {
		if accepted(container) && s.resources.Only(devices) != nil {
			return true
		}
	}
	return false
}

// lookAt asks the kubelet for a pod; false where it cannot tell.
func (c *Coordinator) lookAt(ctx context.Context, name podName) (kubelet.View, bool) {
	ctx, cancel := context.WithTimeout(ctx, bounded.Look)
	defer cancel()
	if name.namespace == "" {
		name.namespace = "default"
	}
	view, err := c.Get(ctx, kubelet.Pod{Namespace: name.namespace, Name: name.pod})
	return view, err == nil
}

// containersOf names the containers of a pod that a view or the decisions know.
func (c *Coordinator) containersOf(name podName, view kubelet.View) []string {
	pod := podName{namespace: name.namespace, pod: name.pod}
	known := map[string]bool{}
	for container := range view.Containers {
		known[container.Name] = true
	}
	for _, e := range c.history.Of(pod.accepts) {
		known[e.Container.Name] = true
	}
	return slices.Sorted(maps.Keys(known))
}

// unasked is for the pods that the kubelet's Topology Manager refuses: it does not list them any more.
const unasked = "about a pod with status TopologyAffinityError the kubelet asked no plugin: " +
	"\"tandem doctor\" says which requests this node refuses"

func nothingToTell(name podName, view kubelet.View, known, ours bool) error {
	pod := name.whole()
	switch {
	case !known:
		return fmt.Errorf("explain %s: it is in none of the last %d decisions, and this kubelet does not tell "+
			"about single pods (it does from 1.34 on); %s", pod, history.Most, unasked)
	case len(view.Pods) == 0 && name.namespace == "":
		return fmt.Errorf("explain %s: it is in none of the last %d decisions, and namespace default has no such "+
			"pod on this node; %s", pod, history.Most, unasked)
	case len(view.Pods) == 0:
		return fmt.Errorf("explain %s: this node has no such pod, and it is in none of the last %d decisions; %s",
			pod, history.Most, unasked)
	case ours:
		return fmt.Errorf("explain %s: it was decided before the last %d decisions, and what was written down of "+
			"it is lost: after a boot, or a run folder that was removed", pod, history.Most)
	default:
		return errors.New("explain " + pod + ": it holds no device of these plugins")
	}
}
