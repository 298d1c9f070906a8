// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// multus creates a pod with two Multus networks, each with a VF. Multus learns the VFs from the kubelet and
// from tandem-rdma's files: they must be the container's.
func (t *tester) multus(ctx context.Context, s setup) error {
	const definition = "test/vm/deploy/multus/definition.yaml" // must precede its objects
	if err := t.node.KubectlEach(ctx, []string{"apply", "-f", definition},
		[]string{"wait", "--for=condition=Established", "--timeout=1m", "-f", definition},
		[]string{"apply", "-k", "test/vm/deploy/multus"}); err != nil {
		return err
	}
	if _, err := t.node.Run(ctx, "cp /etc/kubernetes/multus.conf /etc/cni/net.d/00-multus.conf"); err != nil {
		return err
	}
	two := pair(2)
	two.networks = "rdma,rdma"
	name, o, late, err := t.admit(ctx, s, two)
	if err != nil {
		return err
	}
	problem := judge(s, two, o)
	r := Row{Setup: t.title(s), Scenario: "Multus, 2+2 and a network for each VF", Problem: problem, outcome: o}
	if r.Problem == "" {
		told, err := t.networks(ctx, name)
		if err != nil {
			return err
		}
		var seen []string
		for _, path := range o.Containers[0].VFs {
			seen = append(seen, filepath.Base(path))
		}
		slices.Sort(told)
		slices.Sort(seen)
		r.note = join("Multus tells of "+strings.Join(told, " and "), lateNote(late))
		if !slices.Equal(told, seen) {
			r.Problem = fmt.Sprintf("Multus tells of the VFs %s, the container has %s", told, seen)
		}
	}
	t.add(r)
	_, err = t.node.Run(ctx, "rm /etc/cni/net.d/00-multus.conf")
	return errors.Join(err, t.node.Remove(ctx, name))
}

// networks returns the PCI addresses in Multus' network status of a pod.
func (t *tester) networks(ctx context.Context, name string) ([]string, error) {
	pod, err := t.node.WatchPod(ctx, name, func(*corev1.Pod) bool { return true })
	if err != nil {
		return nil, err
	}
	var status []struct {
		Device struct {
			PCI struct {
				Address string `json:"pci-address"`
			} `json:"pci"`
		} `json:"device-info"`
	}
	if err := json.Unmarshal([]byte(pod.Annotations["k8s.v1.cni.cncf.io/network-status"]), &status); err != nil {
		return nil, fmt.Errorf("read the networks of pod %s: %w", name, err)
	}
	var addresses []string
	for _, network := range status {
		if address := network.Device.PCI.Address; address != "" {
			addresses = append(addresses, address)
		}
	}
	return addresses, nil
}
