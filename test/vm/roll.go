package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// roll does what deployments/kubelet is for, as a user would: it changes the kubelet's configuration on the node, or puts it
// back, and adds a row on what the kubelet says of itself then.
func (t *tester) roll(ctx context.Context, action, topologyPolicy, cpuPolicy string) error {
	name := "deployments/kubelet/roll.sh " + action
	return t.stage(ctx, name, 10*time.Minute, func(ctx context.Context) error {
		start := time.Now()
		if err := t.node.ready(ctx); err != nil {
			return err
		}
		if _, err := t.node.kubectl(ctx, "", "apply", "-k", "test/vm/deploy/kubelet"); err != nil {
			return err
		}
		cmd := exec.Command("deployments/kubelet/roll.sh", action, nodeName)
		cmd.Env = append(os.Environ(), "KUBECTL="+t.path("kubernetes/kubectl")+" --kubeconfig="+t.path("run/admin"))
		if _, err := command(ctx, cmd); err != nil {
			return err
		}
		says, err := t.node.kubeletSays(ctx)
		if err != nil {
			return err
		}
		r := row{setup: t.node.machine.title(), scenario: name, took: time.Since(start), note: says}
		if want := settings(topologyPolicy, "container", cpuPolicy); says != want {
			r.problem = "want " + want
		}
		t.add(r)
		return nil
	})
}

func settings(topologyPolicy, scope, cpuPolicy string) string {
	return fmt.Sprintf("topologyManagerPolicy %s, topologyManagerScope %s, cpuManagerPolicy %s", topologyPolicy, scope, cpuPolicy)
}

// kubeletSays is the configuration that the running kubelet serves.
func (n *node) kubeletSays(ctx context.Context) (string, error) {
	output, err := n.kubectl(ctx, "", "get", "--raw", "/api/v1/nodes/"+nodeName+"/proxy/configz")
	if err != nil {
		return "", err
	}
	var served struct {
		KubeletConfig struct {
			TopologyManagerPolicy, TopologyManagerScope, CPUManagerPolicy string
		}
	}
	if err := json.Unmarshal([]byte(output), &served); err != nil {
		return "", fmt.Errorf("read the kubelet's configuration: %w", err)
	}
	c := served.KubeletConfig
	return settings(c.TopologyManagerPolicy, c.TopologyManagerScope, c.CPUManagerPolicy), nil
}
