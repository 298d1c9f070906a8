// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/publish"
)

// newPublisher returns the publisher of the node, or nil if the flags name no target.
func (f Flags) newPublisher(log *slog.Logger) (coordination.Publisher, error) {
	targets := f.targets
	if len(targets) == 0 {
		return nil, nil
	}
	client, sinks, err := f.newSinks(log)
	if err != nil {
		return nil, fmt.Errorf("--publish: %w", err)
	}
	sys, err := f.Sysfs()
	if err != nil {
		return nil, err
	}
	read := publish.ReaderConfig{Sys: sys, KubeletDir: f.KubeletDir, Files: f.configFiles(), Log: log}
	read.Pods = func(ctx context.Context, each func(*corev1.Pod)) error {
		return kubelet.ListPods(ctx, f.KubeletDir, each)
	}
	if f.Kubelet.Address != "" {
		read.Configz = kubelet.NewHTTPS(f.kubeletEndpoint()).Configz
	}
	config := publish.Config{
		Reader: publish.NewReader(read), Sinks: sinks, Watch: publish.Watch(f.KubeletDir, log),
		Published: f.monitor.Published, Log: log,
	}
	if client != nil {
		config.Reach = client.Reach
	}
	return publish.New(config), nil
}

// newSinks returns a sink per target, and the client of the API server if a target needs the API server.
func (f Flags) newSinks(log *slog.Logger) (client *publish.Client, sinks []publish.Sink, err error) {
	targets := f.targets
	made := func(f publish.Facts) map[string]string {
		all := publish.BuildLabels(f)
		if targets.Has(publish.KubeNexus) {
			maps.Copy(all, publish.BuildKubeNexusLabels(f))
		}
		return all
	}
	for _, target := range targets {
		if target == publish.KubeNexus {
			continue // labels of the target nfd
		}
		if client == nil {
			if client, err = f.newClient(); err != nil {
				return nil, nil, err
			}
		}
		render, shared := publish.NodeTopology, false
		switch target {
		case publish.NRT:
			render, shared = publish.Zones, true
		case publish.NFD:
			namespace, err := ownNamespace()
			if err != nil {
				return nil, nil, err
			}
			render = publish.NodeFeature(namespace, made)
		}
		sinks = append(sinks, publish.NewObjectSink(string(target), client, shared, render, log))
	}
	return client, sinks, nil
}

func (f Flags) newClient() (*publish.Client, error) {
	if f.NodeName == "" {
		return nil, errors.New("the node's name is not known; set --node-name, or NODE_NAME from spec.nodeName")
	}
	server, err := intent.ServerConfig(nil)
	if err != nil {
		return nil, err
	}
	return publish.NewClient(server, f.NodeName)
}

// ownNamespace returns the namespace of this process's pod.
func ownNamespace() (string, error) {
	name, err := os.ReadFile(account + "namespace")
	if err != nil {
		return "", fmt.Errorf("find the pod's namespace: %w", err)
	}
	return strings.TrimSpace(string(name)), nil
}
