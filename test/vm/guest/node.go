// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const containerdSocket = "/run/containerd/containerd.sock"

// startContainerd starts containerd and imports the images. Every container gets sysroot in place of the
// default specification's sysfs, so that unmodified manifests see the machine of the identity.
func startContainerd() error {
	if err := writeBaseSpec("/etc/containerd/base.json"); err != nil {
		return err
	}
	supervise("containerd")
	if err := waitFor(containerdSocket); err != nil {
		return err
	}
	go func() { imported <- importImages() }()
	return nil
}

// imported receives the result of the import.
var imported = make(chan error, 1)

func waitForImages() error { return <-imported }

func writeBaseSpec(file string) error {
	content, err := exec.Command("ctr", "oci", "spec").Output()
	if err != nil {
		return fmt.Errorf("ctr oci spec: %w", err)
	}
	var spec map[string]any
	if err := json.Unmarshal(content, &spec); err != nil {
		return err
	}
	if told("gpus") == nvidia {
		spec["hooks"] = map[string]any{
			"createContainer": []any{
				map[string]any{"path": "/usr/local/bin/guest", "args": []string{"guest", "runtime"}},
			},
		}
	}
	mounts, _ := spec["mounts"].([]any)
	for i, m := range mounts {
		if mount, _ := m.(map[string]any); mount["destination"] == "/sys" {
			mounts[i] = map[string]any{
				"destination": "/sys",
				"type":        "bind",
				"source":      sysroot,
				"options":     []string{"bind", "nosuid", "noexec", "nodev", "ro"},
			}
		}
	}
	if content, err = json.Marshal(spec); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}

// importImages imports the images once, in place of a registry; they survive reboots.
func importImages() error {
	const done = "/var/lib/containerd/imported"
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	images, err := filepath.Glob("/opt/images/*.tar")
	if err != nil {
		return err
	}
	for _, image := range images {
		if output, err := exec.Command("ctr", "-n", "k8s.io", "images", "import",
			image).CombinedOutput(); err != nil {
			return fmt.Errorf("import %s: %w: %s", image, err, output)
		}
	}
	return os.WriteFile(done, nil, 0o644)
}

func startKubelet() error {
	supervise("kubelet", "--config=/etc/kubernetes/kubelet.yaml", "--config-dir=/etc/kubernetes/kubelet.conf.d",
		"--kubeconfig=/etc/kubernetes/kubeconfig", "--hostname-override=node", "--node-ip=10.0.2.15")
	return nil
}

func waitForKubelet() error { return waitFor("/var/lib/kubelet/device-plugins/kubelet.sock") }

// supervise starts a program, and restarts it whenever it ends; its output goes to /var/log.
func supervise(name string, args ...string) {
	go func() {
		for {
			log, err := os.OpenFile("/var/log/"+name+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
			if err != nil {
				tell("%s: %v", name, err)
				return
			}
			cmd := exec.Command(name, args...)
			cmd.Stdout, cmd.Stderr = log, log
			err = cmd.Run()
			log.Close()
			tell("%s ended: %v", name, err)
			<-time.After(time.Second) // not faster, whatever is wrong
		}
	}()
}

// waitFor polls until a file exists. Its folders appear meanwhile too, so there is nothing to watch.
func waitFor(file string) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	limit := time.After(5 * time.Minute)
	for {
		if _, err := os.Stat(file); err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-limit:
			return fmt.Errorf("%s is not there after 5 minutes", file)
		}
	}
}

// printPodResources prints the kubelet's List as JSON. It must not run while pods are admitted.
func printPodResources() error {
	connection, err := grpc.NewClient("unix:///var/lib/kubelet/pod-resources/kubelet.sock",
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, err := v1.NewPodResourcesListerClient(connection).List(ctx, &v1.ListPodResourcesRequest{})
	if err != nil {
		return fmt.Errorf("ask the kubelet for PodResources: %w", err)
	}
	return json.NewEncoder(os.Stdout).Encode(list)
}
