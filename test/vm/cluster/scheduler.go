// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/test/vm/build"
	"github.com/tandem-k8s/tandem/test/vm/host"
)

// Scheduler is the scheduler name of pods for tandem-scheduler.
const Scheduler = "tandem-scheduler"

// StartScheduler starts tandem-scheduler next to the cluster's default scheduler, when the node has published
// the kubelet's policy: without it tandem-scheduler holds no pod back. The returned function ends it.
func (k *Cluster) StartScheduler(ctx context.Context) (stop func(), err error) {
	const policy = "jsonpath={.spec.kubelet.topologyManagerPolicy}=restricted"
	if err := k.await(ctx, publication, "create", policy); err != nil {
		return nil, err
	}
	file := k.cache.Path("run", Scheduler+".yaml")
	config, err := k.schedulerConfig()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(k.cache.Path(build.Scheduler), "--config="+file, "--secure-port=0")
	s, err := host.StartService(cmd, k.cache.Path("run", Scheduler+".log"))
	if err != nil {
		return nil, err
	}
	return s.Stop, nil
}

// schedulerConfig returns the configuration in deployments/scheduler, for a single scheduler outside the
// cluster.
func (k *Cluster) schedulerConfig() ([]byte, error) {
	content, err := os.ReadFile("deployments/scheduler/config.yaml")
	if err != nil {
		return nil, err
	}
	var shipped corev1.ConfigMap
	if err := yaml.Unmarshal(content, &shipped); err != nil {
		return nil, fmt.Errorf("read the scheduler's ConfigMap: %w", err)
	}
	config := map[string]any{}
	if err := yaml.Unmarshal([]byte(shipped.Data["config.yaml"]), &config); err != nil {
		return nil, fmt.Errorf("read the scheduler's configuration: %w", err)
	}
	config["leaderElection"] = map[string]any{"leaderElect": false}
	config["clientConnection"] = map[string]any{"kubeconfig": k.cache.Path("run/scheduler")}
	return yaml.Marshal(config)
}

// publication is the object that the node publishes.
const publication = "nodetopology/" + NodeName

// Left waits until the node has published this many same-switch pairs of free devices.
func (k *Cluster) Left(ctx context.Context, pairs int) error {
	return k.await(ctx, publication, "create", fmt.Sprintf("jsonpath={.spec.summary.freePairs}=%d", pairs))
}

// Waits waits until a scheduler reports why a pod is unschedulable, and returns the message.
func (k *Cluster) Waits(ctx context.Context, name string) (string, error) {
	pod, err := k.WatchPod(ctx, name, func(p *corev1.Pod) bool {
		return unscheduled(p) != "" || p.Spec.NodeName != ""
	})
	if err != nil {
		return "", err
	}
	if pod.Spec.NodeName != "" {
		return "", fmt.Errorf("pod %s was sent to %s", name, pod.Spec.NodeName)
	}
	return unscheduled(pod), nil
}

func unscheduled(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return strings.TrimSpace(c.Message)
		}
	}
	return ""
}
