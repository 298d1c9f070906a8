// SPDX-License-Identifier: Apache-2.0

package coordinator_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/golden"
	"github.com/tandem-k8s/tandem/topology"
)

// twoNodes is a node with four GPUs and vfs VFs on each of two NUMA nodes. Owners hold the first devices of a
// resource on a NUMA node; "?" is an unknown one.
func twoNodes(vfs int, owners map[string][]string) *coordinator.Status {
	s := &coordinator.Status{}
	for kind, count := range []int{4, vfs} {
		kind := []string{"gpu", "vf"}[kind]
		r := coordinator.Resource{Name: "example.com/" + kind, Kind: kind, Connected: true}
		for node := range 2 {
			holders := owners[fmt.Sprint(kind, node)]
			for i := range count {
				d := coordinator.Device{ID: fmt.Sprint(kind, node, i), NUMA: topology.Node(node), State: "free"}
				d.Switch = fmt.Sprintf("0000:%d%d:00.0", node, i%4/2) // two on each NUMA node
				if i < len(holders) {
					d.State, d.Owner = "allocated", strings.TrimPrefix(holders[i]+"/c", "?/c")
				}
				r.Devices = append(r.Devices, d)
			}
		}
		s.Resources = append(s.Resources, r)
	}
	return s
}

func pod(gpus, vfs int, cpus string) *corev1.Pod {
	limits := corev1.ResourceList{"example.com/gpu": *resource.NewQuantity(int64(gpus), resource.DecimalSI)}
	if vfs > 0 {
		limits["example.com/vf"] = *resource.NewQuantity(int64(vfs), resource.DecimalSI)
	}
	if cpus != "" {
		limits["cpu"], limits["memory"] = resource.MustParse(cpus), resource.MustParse("1Gi")
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train"},
		Spec: corev1.PodSpec{NodeName: "gpu-1", Containers: []corev1.Container{{
			Name: "worker", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits},
		}}},
	}
}

// at is the time of the rejection, by the kubelet's clock.
var at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// since are the decisions for pods that got their devices some time after the rejection.
func since(pods map[string]time.Duration) (decisions []coordinator.Decision) {
	for pod, later := range pods {
		when := at.Add(later)
		decisions = append(decisions, coordinator.Decision{Container: pod + "/c", AllocatedAt: &when, Held: true})
	}
	return decisions
}

// TestText: the text for each reason of a rejection, under scope pod, without the holders' names, and with
// what is known of the node at the rejection.
func TestText(t *testing.T) {
	t.Parallel()
	busy := map[string][]string{
		"gpu0": {"team/a", "team/a", "team/a"}, "gpu1": {"team/b", "team/b", "team/b"},
		"vf0": {"team/a"}, "vf1": {"team/b", "team/b", "team/b"},
	}
	few := map[string][]string{"gpu0": {"team/a"}, "gpu1": {"team/b"}, "vf0": {"team/a"}, "vf1": {"team/b"}}
	unnamed := map[string][]string{"gpu0": {"?", "?", "?"}, "gpu1": {"?"}}
	earlier := map[string]time.Duration{"team/a": -time.Hour, "team/b": -time.Minute}
	twice := func(p *corev1.Pod) *corev1.Pod {
		side := p.Spec.Containers[0]
		side.Name = "side"
		p.Spec.Containers = append(p.Spec.Containers, side)
		return p
	}
	for name, c := range map[string]struct {
		vfs    int
		owners map[string][]string
		since  map[string]time.Duration
		pod    *corev1.Pod
		policy string // "" for restricted, scope container
		unread error  // of the decisions
	}{
		"busy":              {4, busy, earlier, pod(2, 2, ""), "", nil},
		"busy-later":        {4, busy, map[string]time.Duration{"team/a": time.Minute}, pod(2, 2, ""), "", nil},
		"busy-same-second":  {4, busy, map[string]time.Duration{"team/b": time.Second / 2}, pod(2, 2, ""), "", nil},
		"unknown-holders":   {4, unnamed, nil, pod(4, 4, ""), "", nil},
		"unknown-decisions": {4, busy, nil, pod(2, 2, ""), "", errors.New("an older plugin")},
		"always":            {16, nil, nil, pod(5, 5, ""), "", nil},
		"far-too-many":      {16, nil, nil, pod(1<<20, 1<<20, ""), "", nil},
		"too-many":          {4, nil, nil, pod(9, 0, ""), "", nil},
		"fits-now":          {4, nil, nil, pod(2, 2, ""), "", nil},
		"cpus":              {4, nil, nil, pod(2, 2, "8"), "", nil},
		"no-device":         {4, nil, nil, pod(0, 0, ""), "", nil},
		"pod-busy":          {4, few, earlier, twice(pod(4, 4, "")), "topologyManagerScope: pod", nil},
		"pod-too-many":      {4, few, nil, twice(pod(5, 5, "")), "topologyManagerScope: pod", nil},
		"pod-always":        {16, few, nil, twice(pod(3, 3, "")), "topologyManagerScope: pod", nil},
		"one-too-many":      {4, few, nil, twice(pod(4, 5, "")), "", nil},
		"single-numa-node":  {4, few, nil, pod(5, 5, ""), "topologyManagerPolicy: single-numa-node", nil},
		"policy-changed":    {4, busy, earlier, pod(2, 2, ""), "topologyManagerPolicy: none", nil},
		"unknown-policy":    {4, busy, earlier, pod(2, 2, ""), "unreadable", nil},
		"node-of-a-command": {4, busy, earlier, on(pod(2, 2, ""), ""), "", nil},
	} {
		c.pod.Status.StartTime = &metav1.Time{Time: at}
		r := coordinator.ExplainRejection(c.pod, twoNodes(c.vfs, c.owners), kubelet.Read(since(c.since), c.unread),
			configured(t, c.policy))
		golden.Check(t, "testdata/"+name+".txt",
			fmt.Sprintf("%sfits now: %v, the empty node: %v\n", r.Text(), r.FitsNow, r.FitsEmpty))
	}
}

func on(p *corev1.Pod, node string) *corev1.Pod {
	p.Spec.NodeName = node
	return p
}

// configured returns the settings of a kubelet's configuration, restricted without another policy.
func configured(t *testing.T, settings string) kubelet.Reading[kubelet.Settings] {
	t.Helper()
	file := filepath.Join(t.TempDir(), kubelet.ConfigFile)
	content := "apiVersion: " + kubelet.ConfigVersion + "\nkind: " + kubelet.ConfigKind + "\n" + settings + "\n"
	if !strings.Contains(settings, "Policy") {
		content += "topologyManagerPolicy: restricted\n"
	}
	if settings == "unreadable" {
		return kubelet.Read(kubelet.Settings{}, errors.New("no right to read"))
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubelet.Read(kubelet.ReadSettings(kubelet.ConfigFiles{Config: file}, nil))
}

// TestManyContainers: a pod of thousands of init containers, which take the same devices one after the other,
// is explained like others, on a page of text, and without a search of seconds for the pods to wait for.
func TestManyContainers(t *testing.T) {
	t.Parallel()
	p, owners := pod(8, 120, ""), map[string][]string{"gpu0": {"team/a"}}
	one := pod(1, 1, "").Spec.Containers[0]
	for i := range 8000 {
		one.Name = fmt.Sprint("init-", i)
		p.Spec.InitContainers = append(p.Spec.InitContainers, one)
	}
	for i := range 60 {
		owners["vf0"] = append(owners["vf0"], fmt.Sprint("team/", i))
	}
	none := kubelet.Read([]coordinator.Decision{}, nil)
	r := coordinator.ExplainRejection(p, twoNodes(60, owners), none, configured(t, ""))
	if !r.FitsEmpty || r.FitsNow || !strings.HasPrefix(r.Next, "wait for free devices, ") {
		t.Errorf("fits now: %v, the empty node: %v, next: %s", r.FitsNow, r.FitsEmpty, r.Next)
	}
	text := r.Text().String()
	if lines := strings.Count(text, "\n"); lines > 200 || !strings.Contains(text, "and 7985 containers more") {
		t.Errorf("%d lines, want at most 200:\n%.2000s", lines, text)
	}
}
