// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// holdings are owners by device, "namespace/pod/container" by "resource id".
type holdings map[string]string

// fromKubelet returns the holdings in PodResources.
func (n *Node) fromKubelet(ctx context.Context) (holdings, error) {
	output, err := n.Run(ctx, "guest podresources")
	if err != nil {
		return nil, err
	}
	var list struct {
		Pods []struct {
			Name, Namespace string
			Containers      []struct {
				Name    string
				Devices []struct {
					Resource string   `json:"resource_name"`
					IDs      []string `json:"device_ids"`
				}
			}
		} `json:"pod_resources"`
	}
	if err := json.Unmarshal([]byte(output), &list); err != nil {
		return nil, fmt.Errorf("read PodResources: %w: %s", err, output)
	}
	h := holdings{}
	for _, pod := range list.Pods {
		for _, container := range pod.Containers {
			for _, devices := range container.Devices {
				for _, id := range devices.IDs {
					h[devices.Resource+" "+id] = pod.Namespace + "/" + pod.Name + "/" + container.Name
				}
			}
		}
	}
	return h, nil
}

// fromLedger returns the holdings in tandem status, and the number of usable devices of each resource.
func (n *Node) fromLedger(ctx context.Context) (holdings, map[string]int, error) {
	output, err := n.Run(ctx, "tandem status -o json")
	if err != nil {
		return nil, nil, err
	}
	var status struct {
		Resources []struct {
			Name    string
			Devices []struct{ ID, State, Owner string }
		}
	}
	if err := json.Unmarshal([]byte(output), &status); err != nil {
		return nil, nil, fmt.Errorf("read tandem status: %w: %s", err, output)
	}
	h, count := holdings{}, map[string]int{}
	for _, resource := range status.Resources {
		for _, device := range resource.Devices {
			if !strings.Contains(device.State, "unhealthy") {
				count[resource.Name]++
			}
			if strings.HasPrefix(device.State, "allocated") {
				h[resource.Name+" "+device.ID] = device.Owner
			}
		}
	}
	return h, count, nil
}

// Agree returns the differences between PodResources, the ledger and the API server's node status. The ledger
// learns of a pod's end from the kubelet's next call, and may learn an owner late: neither is a difference.
func (n *Node) Agree(ctx context.Context) error {
	kubelet, err := n.fromKubelet(ctx)
	if err != nil {
		return err
	}
	ledger, count, err := n.fromLedger(ctx)
	if err != nil {
		return err
	}
	running := map[string]bool{}
	for device, owner := range kubelet {
		running[owner] = true
		if known, ok := ledger[device]; !ok || known != "" && known != owner {
			return fmt.Errorf("PodResources says that %s is with %q, the ledger says %q", device, owner, known)
		}
	}
	for device, owner := range ledger {
		if kubelet[device] == "" && running[owner] {
			return fmt.Errorf("the ledger says that %s is with %s, PodResources does not", device, owner)
		}
	}
	output, err := n.Kubectl(ctx, "", "get", "node", NodeName, "-o", "jsonpath={.status.allocatable}")
	if err != nil {
		return err
	}
	var allocatable map[string]string
	if err := json.Unmarshal([]byte(output), &allocatable); err != nil {
		return err
	}
	for resource, devices := range count {
		if allocatable[resource] != fmt.Sprint(devices) {
			return fmt.Errorf("the node has %s of %s to give, the ledger %d", allocatable[resource], resource, devices)
		}
	}
	return nil
}
