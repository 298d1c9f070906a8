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

// ledger is Tandem's view of the node.
type ledger struct {
	holdings
	count     map[string]int    // usable devices of each resource
	addresses map[string]string // by "resource id"
	kinds     map[string]string // by resource
}

// fromLedger returns the view in tandem status.
func (n *Node) fromLedger(ctx context.Context) (*ledger, error) {
	output, err := n.Run(ctx, "tandem status -o json")
	if err != nil {
		return nil, err
	}
	var status struct {
		Resources []struct {
			Name, Kind string
			Devices    []struct{ ID, Address, State, Owner string }
		}
	}
	if err := json.Unmarshal([]byte(output), &status); err != nil {
		return nil, fmt.Errorf("read tandem status: %w: %s", err, output)
	}
	l := &ledger{
		holdings: holdings{}, count: map[string]int{}, addresses: map[string]string{}, kinds: map[string]string{},
	}
	for _, resource := range status.Resources {
		l.kinds[resource.Name] = resource.Kind
		for _, device := range resource.Devices {
			name := resource.Name + " " + device.ID
			l.addresses[name] = device.Address
			if !strings.Contains(device.State, "unhealthy") {
				l.count[resource.Name]++
			}
			if strings.HasPrefix(device.State, "allocated") {
				l.holdings[name] = device.Owner
			}
		}
	}
	return l, nil
}

// Agree returns the differences between PodResources, the ledger and the API server's node status. The ledger
// learns of a pod's end from the kubelet's next call, and may learn an owner late: neither is a difference.
func (n *Node) Agree(ctx context.Context) error {
	kubelet, err := n.fromKubelet(ctx)
	if err != nil {
		return err
	}
	ledger, err := n.viewLedger(ctx)
	if err != nil {
		return err
	}
	n.recording.confirmAll(kubelet, ledger)
	running := map[string]bool{}
	for device, owner := range kubelet {
		running[owner] = true
		if known, ok := ledger.holdings[device]; !ok || known != "" && known != owner {
			return fmt.Errorf("PodResources says that %s is with %q, the ledger says %q", device, owner, known)
		}
	}
	for device, owner := range ledger.holdings {
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
	for resource, devices := range ledger.count {
		if allocatable[resource] != fmt.Sprint(devices) {
			return fmt.Errorf("the node has %s of %s to give, the ledger %d", allocatable[resource], resource, devices)
		}
	}
	return nil
}
