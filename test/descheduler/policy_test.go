// SPDX-License-Identifier: Apache-2.0

// Package descheduler runs the real descheduler's plugin with the policy that the documents give.
package descheduler

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/descheduler/pkg/api"
	"sigs.k8s.io/descheduler/pkg/descheduler"
	"sigs.k8s.io/descheduler/pkg/descheduler/evictions"
	"sigs.k8s.io/descheduler/pkg/framework/pluginregistry"
	"sigs.k8s.io/descheduler/pkg/framework/plugins/defaultevictor"
	"sigs.k8s.io/descheduler/pkg/framework/plugins/removefailedpods"
	handles "sigs.k8s.io/descheduler/pkg/framework/testing"
	"sigs.k8s.io/yaml"
)

// Only what the kubelet has refused is removed, and only where somebody makes another one.
func TestRefusedPodsAreRemoved(t *testing.T) {
	evictor, args := policy(t)
	for _, c := range []struct {
		name    string
		owner   string
		reason  string
		age     time.Duration
		removed bool
	}{
		{"refused, of a ReplicaSet", "ReplicaSet", "TopologyAffinityError", time.Hour, true},
		{"refused by the plugins, of a ReplicaSet", "ReplicaSet", "UnexpectedAdmissionError", time.Hour, true},
		{"just refused", "ReplicaSet", "TopologyAffinityError", time.Second, false},
		{"failed by itself", "ReplicaSet", "Evicted", time.Hour, false},
		{"refused, of a Job", "Job", "TopologyAffinityError", time.Hour, false},
		{"refused, nobody's", "", "TopologyAffinityError", time.Hour, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Name: "train", Namespace: "team", UID: "1", CreationTimestamp: metav1.NewTime(time.Now().Add(-c.age)),
				},
				Spec: v1.PodSpec{NodeName: "node", Volumes: []v1.Volume{{
					Name: "shm", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}},
				}}},
				Status: v1.PodStatus{Phase: v1.PodFailed, Reason: c.reason},
			}
			if c.owner != "" {
				controls := true
				pod.OwnerReferences = []metav1.OwnerReference{{Kind: c.owner, Name: "train", UID: "2", Controller: &controls}}
			}
			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			handle, evicted, err := handles.InitFrameworkHandle(ctx, fake.NewClientset(node, pod),
				evictions.NewOptions(), *evictor, nil)
			if err != nil {
				t.Fatal(err)
			}
			plugin, err := removefailedpods.New(ctx, args, handle)
			if err != nil {
				t.Fatal(err)
			}
			status := plugin.(*removefailedpods.RemoveFailedPods).Deschedule(ctx, []*v1.Node{node})
			if status != nil && status.Err != nil {
				t.Fatal(status.Err)
			}
			if removed := evicted.TotalEvicted() == 1; removed != c.removed {
				t.Errorf("removed %t", removed)
			}
		})
	}
}

// policy reads the policy in the values as the descheduler reads it: what it does not know is an error.
func policy(t *testing.T) (*defaultevictor.DefaultEvictorArgs, *removefailedpods.RemoveFailedPodsArgs) {
	t.Helper()
	content, err := os.ReadFile("../../deployments/descheduler/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		APIVersion string         `json:"deschedulerPolicyAPIVersion"`
		Policy     map[string]any `json:"deschedulerPolicy"`
	}
	if err := yaml.Unmarshal(content, &values); err != nil {
		t.Fatal(err)
	}
	values.Policy["apiVersion"], values.Policy["kind"] = values.APIVersion, "DeschedulerPolicy"
	if content, err = yaml.Marshal(values.Policy); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	pluginregistry.PluginRegistry = pluginregistry.NewRegistry()
	descheduler.SetupPlugins()
	read, err := descheduler.LoadPolicyConfig(file, fake.NewClientset(), pluginregistry.PluginRegistry)
	if err != nil {
		t.Fatal(err)
	}
	profile := read.Profiles[0]
	if got := profile.Plugins.Deschedule.Enabled; len(got) != 1 || got[0] != removefailedpods.PluginName {
		t.Errorf("enabled %v", got)
	}
	return args[*defaultevictor.DefaultEvictorArgs](t, profile, defaultevictor.PluginName),
		args[*removefailedpods.RemoveFailedPodsArgs](t, profile, removefailedpods.PluginName)
}

func args[T any](t *testing.T, profile api.DeschedulerProfile, name string) T {
	t.Helper()
	for _, c := range profile.PluginConfigs {
		if of, ok := c.Args.(T); ok && c.Name == name {
			return of
		}
	}
	t.Fatalf("no arguments of %s", name)
	panic("unreachable")
}
