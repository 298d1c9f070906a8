// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tandem-k8s/tandem/cmd/tandem/play"
)

// player is the command line of play.
type player struct {
	options play.Options
	script  string
	layOut  bool
}

func newPlay() *cobra.Command {
	var p player
	cmd := &cobra.Command{
		Use:   "play",
		Short: "Try the plugins on a recorded machine, without hardware and cluster",
		Long: `Run tandem-gpu and tandem-rdma on a recorded machine, around a kubelet that admits pods by Tandem's model of the kubelet (policy
restricted, scope container) and starts no containers. The commands come from the terminal, standard input or --script: run, delete,
list, verify, env, restart, status, explain, topo, doctor, help, quit. "# ..." is a comment. A script ends at the first command that
fails; a command after "!" has to fail.

The VFs are those of all NICs with RDMA, and a NIC without VFs counts as a VF. Root is not necessary. All files are in a temporary
folder, or in --directory, which is kept. --layout-only only writes the machine into the folder, for the flags of the daemons:
sys (--sysfs-root), dev (--dev-root), kubelet (--kubelet-dir), run (--run-dir) and config.json (--config-file of tandem-rdma).`,
		Example: `  tandem play --machine test/machines/oci-mi300x-derived.txt
  echo 'run train gpu=2 vf=2' | tandem play --machine test/machines/oci-mi300x-derived.txt
  tandem play --machine my-machine.txt --script pods.txt
  tandem play --machine my-machine.txt --layout-only --directory /tmp/node`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&p.options.Machine, "machine", "", "recorded machine, a file written by tandem record")
	completeMachines(cmd)
	flags.StringVar(&p.options.Directory, "directory", "", "empty or new folder for the machine, the files of "+
		"the kubelet and the logs of the daemons (default a temporary folder that is removed at the end)")
	flags.StringVar(&p.options.Programs, "programs", "", "folder with tandem-gpu and tandem-rdma (default the "+
		"folder of tandem)")
	flags.StringVar(&p.script, "script", "", "file with commands (default standard input)")
	flags.BoolVar(&p.layOut, "layout-only", false, "write the machine into --directory and start nothing")
	return cmd
}

func (p *player) run(cmd *cobra.Command) (err error) {
	if err := p.check(); err != nil {
		return err
	}
	in, interactive, err := p.input(cmd.InOrStdin())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ground, err := play.Open(p.options)
	if err != nil {
		return err
	}
	if p.layOut {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), ground.Dir)
		return err
	}
	defer func() { err = errors.Join(err, ground.Close()) }()
	if err := ground.Start(ctx); err != nil {
		return err
	}
	if note := ground.Note(); note != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
	}
	if interactive {
		fmt.Fprint(cmd.OutOrStdout(), ground.Introduction())
	}
	prompt := play.Prompt{
		In: in, Out: cmd.OutOrStdout(), Errors: cmd.ErrOrStderr(), Interactive: interactive,
		Tandem: func(ctx context.Context, args ...string) error { return subcommand(ctx, cmd, args) },
	}
	return prompt.Run(ctx, ground)
}

// check checks the flags, and completes the folder of the programs.
func (p *player) check() error {
	switch {
	case p.options.Machine == "":
		return usage("want a recorded machine: --machine FILE")
	case p.layOut && p.options.Directory == "":
		return usage("--layout-only needs --directory")
	case p.layOut || p.options.Programs != "":
		return nil
	}
	program, err := os.Executable()
	if err == nil {
		program, err = filepath.EvalSymlinks(program)
	}
	if err != nil {
		return fmt.Errorf("find the folder of tandem: %w; name it with --programs", err)
	}
	p.options.Programs = filepath.Dir(program)
	return nil
}

// input returns the commands, and whether a person types them.
func (p *player) input(stdin io.Reader) (in io.ReadCloser, interactive bool, err error) {
	if p.script != "" {
		file, err := os.Open(p.script)
		if err != nil {
			return nil, false, fmt.Errorf("read --script: %w", err)
		}
		return file, false, nil
	}
	file, ok := stdin.(*os.File)
	return io.NopCloser(stdin), ok && term.IsTerminal(int(file.Fd())), nil
}

// subcommand runs another command with the output of play's. Findings are a success, and a wrong command line
// is an error of the script.
func subcommand(ctx context.Context, cmd *cobra.Command, args []string) error {
	root := newRoot()
	root.SetArgs(append([]string{"--" + colour, colourMode(cmd)}, args...))
	root.SetOut(cmd.OutOrStdout())
	root.SetErr(cmd.ErrOrStderr())
	err := root.ExecuteContext(ctx)
	var found foundError
	var wrong usageError
	switch {
	case errors.As(err, &found):
		return nil
	case errors.As(err, &wrong):
		return wrong.error
	default:
		return err
	}
}
