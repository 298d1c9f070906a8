// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/tandem/viewer"
)

// serveStatus shows the page of the node until a signal comes.
func serveStatus(cmd *cobra.Command, address string, v *viewer.Viewer) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	listener, err := viewer.Listen(address)
	if err != nil {
		return err
	}
	viewer.Announce(cmd.OutOrStdout(), cmd.ErrOrStderr(), listener)
	return v.Serve(ctx, listener)
}
