// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// InstallOperators ends Tandem's own DaemonSets, has operators start its image instead of the stock plugins,
// and waits until both offer their devices.
func (n *Node) InstallOperators(ctx context.Context) error {
	if err := n.ready(ctx); err != nil {
		return err
	}
	objects, err := manifest(operators, operatorSpecs)
	if err != nil {
		return err
	}
	registered, err := n.Registrations(ctx)
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"label", "node", NodeName, "tandem.dev/node-"},
		{
			"-n", "kube-system", "wait", "--for=delete", "--timeout=5m", "pod",
			"--selector=app.kubernetes.io/name in (" + strings.Join(Daemons, ",") + ")",
		},
	} {
		if _, err := n.Kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	if _, err := n.Kubectl(ctx, objects, "apply", "-f", "-"); err != nil {
		return err
	}
	n.pool = policyResource
	return errors.Join(n.RegisteredAfter(ctx, registered, ofOperators()...), n.OffersAll(ctx))
}

// ofOperators returns the operators' DaemonSets.
func ofOperators() (names []string) {
	for _, o := range operators {
		names = append(names, o.daemonSet)
	}
	return names
}

// RemoveOperators waits until nothing that they applied is left.
func (n *Node) RemoveOperators(ctx context.Context) error {
	args := []string{"delete", "--timeout=5m", "namespace"}
	for _, o := range operators {
		args = append(args, o.namespace)
	}
	_, err := n.Kubectl(ctx, "", args...)
	return err
}

// Met returns an error if the operators' plugins do not see each other: in one of their pods, or in the
// folder of the node that both can use without a mount.
func (n *Node) Met(ctx context.Context) error {
	said, err := n.Run(ctx, "tandem status -o json --run-dir=/var/lib/kubelet/device-plugins/tandem")
	if err == nil {
		err = connected(said, n.Shape.Resource, n.vfResource())
	}
	if err != nil {
		return fmt.Errorf("on the node: %w", err)
	}
	for _, o := range operators {
		said, err := n.Kubectl(ctx, "", "-n", o.namespace, "exec", "daemonset/"+o.daemonSet, "--",
			"tandem", "status", "-o", "json")
		if err == nil {
			err = connected(said, n.Shape.Resource, n.vfResource())
		}
		if err != nil {
			return fmt.Errorf("in the pod of %s: %w", o.daemonSet, err)
		}
	}
	return nil
}

// connected returns an error if tandem status shows a resource without a plugin.
func connected(said string, resources ...string) error {
	var status struct {
		Resources []struct {
			Name      string
			Connected bool
		}
	}
	if err := json.Unmarshal([]byte(said), &status); err != nil {
		return fmt.Errorf("read tandem status: %w: %s", err, said)
	}
	var there []string
	for _, r := range status.Resources {
		if r.Connected {
			there = append(there, r.Name)
		}
	}
	for _, resource := range resources {
		if !slices.Contains(there, resource) {
			return fmt.Errorf("no plugin of %s is connected, those of %q are", resource, there)
		}
	}
	return nil
}
