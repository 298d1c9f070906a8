package main

import (
	"context"
	"fmt"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/live"
	"github.com/tandem-k8s/tandem/cmd/internal/picture"
	"github.com/tandem-k8s/tandem/coordination"
)

// serveStatus shows the page of the node until a signal comes.
func serveStatus(cmd *cobra.Command, address string, v *viewer) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	listener, err := live.Listen(address)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "http://%s/ shows this node until Ctrl-C\n", listener.Addr())
	if !live.Loopback(listener.Addr()) {
		fmt.Fprintf(cmd.ErrOrStderr(), "WARNING: %s is not a loopback address: whoever reaches it over the network reads the names of this node's "+
			"pods and its hardware, unencrypted and without a password; --serve :PORT serves this host alone\n", listener.Addr())
	}
	return live.Serve(ctx, listener, v.from.title(), v.look)
}

// viewer makes pictures of what the plugins know. It reads the machine again only when their devices are others, for some of its files
// are read from the devices themselves.
type viewer struct {
	runDir  string
	from    source
	palette picture.Palette

	node *node
	of   string // the devices of the time when node was read
}

// look asks the plugins.
func (v *viewer) look(ctx context.Context) (*picture.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	answer, err := coordination.Status(ctx, v.runDir)
	if err != nil {
		return nil, err
	}
	s := newStatusOf(answer)
	if devices := s.devices(); v.node == nil || v.of != devices {
		if v.node, err = readNode(&v.from); err != nil {
			return nil, err
		}
		v.of = devices
	}
	drawn := v.node.picture(v.from.title(), newMatrix(v.node, false))
	drawn.Palette = v.palette
	v.node.fill(drawn, s)
	return drawn, nil
}

// devices names all that the plugins have.
func (s status) devices() string {
	var all strings.Builder
	for _, row := range s.rows() {
		fmt.Fprintln(&all, row.resource, row.ID, row.Address)
	}
	return all.String()
}
