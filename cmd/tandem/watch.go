// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/cli"
)

// watchPause is the polling interval: changes send no notification.
const watchPause = time.Second

// follow shows the state repeatedly until a signal comes.
func (l *looker) follow(cmd *cobra.Command) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	show := func(shown []byte) error {
		if l.format.Format != cli.AsJSON { // with one document after the other
			fmt.Fprintf(cmd.OutOrStdout(), "--- %s\n", time.Now().Format(time.TimeOnly))
		}
		return l.format.Show(cmd, shown)
	}
	return watch(ctx, cmd.ErrOrStderr(), l.look, show)
}

// watch shows the result of look, and each changed result, until ctx is done. A failure of the first look is
// returned; later failures are reported once each.
func watch(
	ctx context.Context, problems io.Writer, look func(context.Context) ([]byte, error), show func([]byte) error,
) error {
	pause := time.NewTicker(watchPause)
	defer pause.Stop()
	var shown []byte
	problem := ""
	for first := true; ; first = false {
		now, err := look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			if text := err.Error(); text != problem {
				fmt.Fprintln(problems, "not up to date:", text)
				problem = text
			}
		case first || problem != "" || !bytes.Equal(now, shown):
			if err := show(now); err != nil {
				return err
			}
			shown, problem = now, ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
	}
}
