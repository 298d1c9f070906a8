// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/live"
	"github.com/tandem-k8s/tandem/cmd/internal/picture"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/topo"
)

// serveStatus shows the page of the node until a signal comes.
func serveStatus(cmd *cobra.Command, address string, v *viewer) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	listener, err := listen(cmd, address)
	if err != nil {
		return err
	}
	return v.serve(ctx, listener)
}

// listen opens the port of the page, and shows the address.
func listen(cmd *cobra.Command, address string) (net.Listener, error) {
	listener, err := live.Listen(address)
	if err != nil {
		return nil, err
	}
	announce(cmd, listener)
	return listener, nil
}

// announce shows the address of the page.
func announce(cmd *cobra.Command, listener net.Listener) {
	fmt.Fprintf(cmd.OutOrStdout(), "http://%s/ shows this node until Ctrl-C\n", listener.Addr())
	if !live.Loopback(listener.Addr()) {
		fmt.Fprintf(cmd.ErrOrStderr(), "WARNING: %s is not a loopback address: whoever reaches it over the "+
			"network reads the names of this node's pods and its hardware, unencrypted and without a password; "+
			"--serve :PORT serves this host alone\n", listener.Addr())
	}
}

// viewer draws the plugins' state. It rereads the machine only if the plugins' devices change, because some
// reads reach the devices themselves.
type viewer struct {
	runDir, kubeletDir string
	from               machine.Source
	title              string // of the page
	palette            picture.Palette

	node *machine.Node
	of   string // the devices of the time when node was read
}

// serve serves the page until ctx is done.
func (v *viewer) serve(ctx context.Context, listener net.Listener) error {
	return live.Serve(ctx, listener, v.title, v.look, v.explain)
}

// look queries the plugins. Without an answer the picture shows sysfs alone.
func (v *viewer) look(ctx context.Context) (*picture.Node, error) {
	s, away := coordinator.Look(ctx, v.runDir, v.kubeletDir, v.from.SysfsRoot)
	if devices := s.Devices(); v.node == nil || v.of != devices {
		node, err := machine.Read(&v.from)
		if err != nil {
			return nil, errors.Join(away, err)
		}
		v.node, v.of = node, devices
	}
	drawn := topo.NewMatrix(v.node, false).Picture(v.title, v.node.Tree)
	if away != nil {
		drawn.Notes = append(drawn.Notes,
			"This is what the machine has, by sysfs alone; who has its devices is not known.")
		return drawn, away
	}
	drawn.Palette = v.palette
	s.Fill(drawn)
	return drawn, nil
}

// explain queries the decisions of the plugins for an owner, named as in the picture.
func (v *viewer) explain(ctx context.Context, owner string) (string, error) {
	parts := strings.Split(owner, "/")
	if len(parts) == 2 { // the namespace is unknown
		parts = append([]string{""}, parts...)
	}
	if len(parts) != 3 {
		return "", fmt.Errorf("explain %q: want NAMESPACE/POD/CONTAINER", owner)
	}
	decisions, err := coordinator.AskDecisions(ctx, v.runDir, parts[0], parts[1], parts[2])
	coordinator.MarkEarlier(decisions, coordinator.Present{})
	return string(coordinator.Explanation(decisions, coordinator.Now(ctx, v.runDir), true)), err
}
