// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
)

// Driver is the DaemonSet of the DRA driver, and its program.
const Driver = "tandem-dra"

// driverName is the driver's name in the API.
const driverName = "tandem.dev"

// ApplyDriver applies one of the folders below deploy with the DRA driver.
func (n *Node) ApplyDriver(ctx context.Context, deploy string) error {
	_, err := n.Kubectl(ctx, "", "apply", "-k", "test/vm/deploy/"+deploy)
	return err
}

// RemoveDriver removes the objects of the folder "dra", and waits until the driver's pods are gone.
func (n *Node) RemoveDriver(ctx context.Context) error {
	_, err := n.Kubectl(ctx, "", "delete", "-k", "test/vm/deploy/dra", "--cascade=foreground", "--timeout=5m")
	return err
}

// RestartKubelet restarts the kubelet, and waits until the driver has registered again. A kubelet with former
// device plugins checks their devices for pods that request the same resources by DRA, and refuses the pods.
func (n *Node) RestartKubelet(ctx context.Context) error {
	before, err := n.Registrations(ctx)
	if err != nil {
		return err
	}
	if _, err := n.Run(ctx, "systemctl restart kubelet"); err != nil {
		return err
	}
	return errors.Join(n.RegisteredAfter(ctx, before, Driver), n.Publishes(ctx))
}

// Publishes waits until the API server has all pairs of the node, all its GPUs, and the VFs outside pairs.
func (n *Node) Publishes(ctx context.Context) error {
	gpus := n.Shape.GPUs()
	want := map[string]int{"pair": gpus, "gpu": gpus, "vf": n.VFs() - gpus}
	return until(ctx, func() error {
		published, err := n.published(ctx)
		if err == nil && !maps.Equal(published, want) {
			err = fmt.Errorf("the driver publishes %v, want %v", published, want)
		}
		return err
	})
}

// published counts the devices in the node's slices by their type.
func (n *Node) published(ctx context.Context) (map[string]int, error) {
	output, err := n.Kubectl(ctx, "", "get", "resourceslices", "-o", "json",
		"--field-selector=spec.nodeName="+NodeName+",spec.driver="+driverName)
	if err != nil {
		return nil, err
	}
	var list resourceapi.ResourceSliceList
	if err := json.Unmarshal([]byte(output), &list); err != nil {
		return nil, fmt.Errorf("read the node's slices: %w", err)
	}
	count := map[string]int{}
	for _, slice := range list.Items {
		for _, device := range slice.Spec.Devices {
			if kind := device.Attributes["type"].StringValue; kind != nil {
				count[*kind]++
			}
		}
	}
	return count, nil
}

// AgreeOnClaims waits until the API server's claims, the driver's data and the CDI specifications of the node
// agree, and returns the differences. Claims are deleted some time after their pods.
func (n *Node) AgreeOnClaims(ctx context.Context) error {
	return until(ctx, func() error {
		allocated, err := n.allocated(ctx)
		if err != nil {
			return err
		}
		specs, err := n.Run(ctx, "ls /var/run/cdi")
		if err != nil {
			return err
		}
		ledger, err := n.fromLedger(ctx)
		if err != nil {
			return err
		}
		return errors.Join(
			differ("CDI specifications of claims", slices.Collect(maps.Keys(allocated)), claimsOf(specs)),
			differ("owners of devices", slices.Collect(maps.Values(allocated)), ownersOf(ledger.holdings)))
	})
}

// HasNoClaims waits until nothing of the driver remains: no slices, which the kubelet deletes some time after
// the driver's end, no claims with devices, and no CDI specifications of claims.
func (n *Node) HasNoClaims(ctx context.Context) error {
	return until(ctx, func() error {
		published, err := n.published(ctx)
		if err != nil {
			return err
		}
		allocated, err := n.allocated(ctx)
		if err != nil {
			return err
		}
		specs, err := n.Run(ctx, "ls /var/run/cdi")
		if err != nil {
			return err
		}
		if claims := claimsOf(specs); len(published)+len(allocated)+len(claims) > 0 {
			return fmt.Errorf("there remain slices with %v, claims %v and CDI specifications of %v", published,
				allocated, claims)
		}
		return nil
	})
}

// allocated returns the names of the claims with devices of the driver, by UID.
func (k *Cluster) allocated(ctx context.Context) (map[string]string, error) {
	output, err := k.Kubectl(ctx, "", "get", "resourceclaims", "--all-namespaces", "-o", "json")
	if err != nil {
		return nil, err
	}
	var list resourceapi.ResourceClaimList
	if err := json.Unmarshal([]byte(output), &list); err != nil {
		return nil, fmt.Errorf("read claims: %w", err)
	}
	claims := map[string]string{}
	for _, claim := range list.Items {
		if claim.Status.Allocation != nil {
			claims[string(claim.UID)] = claim.Name
		}
	}
	return claims, nil
}

// claimsOf returns the UIDs in the names of the driver's CDI specifications.
func claimsOf(files string) (uids []string) {
	for file := range strings.FieldsSeq(files) {
		if uid, ok := strings.CutPrefix(file, driverName+"-claim_"); ok {
			uids = append(uids, strings.TrimSuffix(uid, ".json"))
		}
	}
	return uids
}

// ownersOf returns the names of the claims that own devices.
func ownersOf(h holdings) (claims []string) {
	for _, owner := range h {
		if _, claim, ok := strings.Cut(owner, "/claim "); ok {
			claims = append(claims, claim)
		}
	}
	return claims
}

// differ returns the difference of two sets as an error.
func differ(what string, want, got []string) error {
	slices.Sort(want)
	slices.Sort(got)
	if got = slices.Compact(got); slices.Equal(want, got) {
		return nil
	}
	return fmt.Errorf("%s: the API server has %q, the node %q", what, want, got)
}

// patience is how long two sides may take to say the same.
const patience = 2 * time.Minute

// until retries every second until success or for patience, and returns the last error.
func until(ctx context.Context, ask func() error) error {
	limit := time.After(patience)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-limit:
			return err
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}
