// SPDX-License-Identifier: Apache-2.0

// Package viewer shows a node with its plugins as a live page: one read-only page over HTTP, which refreshes
// itself. The server queries the node at most once a second, for any number of clients.
package viewer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/picture"
	"github.com/tandem-k8s/tandem/cmd/tandem/rejection"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Announce shows the address of the page.
func Announce(stdout, stderr io.Writer, listener net.Listener) {
	fmt.Fprintf(stdout, "http://%s/ shows this node until Ctrl-C\n", listener.Addr())
	if !reachesHostOnly(listener.Addr()) {
		fmt.Fprintf(stderr, "WARNING: %s is not a loopback address: whoever reaches it over the "+
			"network reads the names of this node's pods and its hardware, unencrypted and without a password; "+
			"--serve :PORT serves this host alone\n", listener.Addr())
	}
}

// Viewer draws the plugins' state. It rereads the machine only if the plugins' devices change, because some
// reads reach the devices themselves.
type Viewer struct {
	RunDir, KubeletDir string
	From               machine.Source
	Title              string // of the page

	palette picture.Palette
	node    *machine.Node
	of      string // the devices of the time when node was read
}

// Serve serves the page until ctx is done.
func (v *Viewer) Serve(ctx context.Context, listener net.Listener) error {
	v.palette = picture.Palette{}
	return servePage(ctx, listener, v.Title, v.look, v.explain)
}

// look queries the plugins. Without an answer the picture shows sysfs alone.
func (v *Viewer) look(ctx context.Context) (*picture.Node, error) {
	s, away := coordinator.Look(ctx, v.RunDir, v.KubeletDir, v.From.SysfsRoot)
	if devices := s.Devices(); v.node == nil || v.of != devices {
		node, err := machine.Read(&v.From)
		if err != nil {
			return nil, errors.Join(away, err)
		}
		v.node, v.of = node, devices
	}
	drawn := machine.NewMatrix(v.node, false).Picture(v.Title, v.node.Tree)
	if away != nil {
		drawn.Notes = append(drawn.Notes,
			"This is what the machine has, by sysfs alone; who has its devices is not known.")
		return drawn, away
	}
	drawn.Palette = v.palette
	s.Fill(drawn)
	pods, err := rejection.Pods(ctx, v.KubeletDir)
	if err != nil && !errors.Is(err, kubelet.ErrNoPodsAPI) {
		drawn.Notes = append(drawn.Notes, fmt.Sprintf("Rejected pods are unknown: %v.", err))
	}
	for _, pod := range pods {
		drawn.Rejected = append(drawn.Rejected, pod.Namespace+"/"+pod.Name+"/")
	}
	return drawn, nil
}

// explain queries the decisions of the plugins for an owner, named as in the picture. A pod that the kubelet
// has rejected has no container in its name, and is compared with the node.
func (v *Viewer) explain(ctx context.Context, owner string) (string, error) {
	parts := strings.Split(owner, "/")
	if len(parts) == 2 { // the namespace is unknown
		parts = append([]string{""}, parts...)
	}
	if len(parts) != 3 {
		return "", fmt.Errorf("explain %q: want NAMESPACE/POD/CONTAINER", owner)
	}
	if parts[2] == "" {
		rejected, err := rejection.Ask(ctx, v.RunDir, v.KubeletDir, rejection.Proc, parts[0], parts[1])
		if err != nil {
			return "", err
		}
		if rejected != nil {
			return string(rejected.Text()), nil
		}
	}
	decisions, err := coordinator.AskDecisions(ctx, v.RunDir, parts[0], parts[1], parts[2])
	coordinator.MarkEarlier(decisions, coordinator.Present{})
	return string(coordinator.Explanation(decisions, coordinator.Now(ctx, v.RunDir), true)), err
}
