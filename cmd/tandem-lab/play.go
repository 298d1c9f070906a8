// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/test/playground"
)

// player is the command line of playground.
type player struct {
	options playground.Options
	script  string
	serve   string // address of the page; "" for none
	layOut  bool
}

func newPlay() *cobra.Command {
	var p player
	cmd := &cobra.Command{
		Use:   "play",
		Short: "Try the plugins on a recorded machine, without hardware and cluster",
		Long: `Run tandem-gpu and tandem-rdma on a recorded machine, around a kubelet that admits pods by Tandem's model of the kubelet (policy
restricted, scope container) and starts no containers. The commands come from the terminal, standard input or --script: run, delete,
list, verify, env, fail, degrade, heal, restart, status, explain, topo, doctor, qualify, help, quit. "# ..." is a comment. A script ends at the
first command that fails; a command after "!" has to fail, and a mistake such as an unknown command ends the script as well.

fail, degrade and heal change the files of sysfs by which the plugins judge ports and PCIe links, and wait until the plugins know.

--serve also serves the page of tandem status --serve. After the end of --script the page stays until Ctrl-C.

The VFs are those of all NICs with RDMA, and a NIC without VFs counts as a VF; --vfs adds VFs. Root is not necessary. All files are in
a temporary folder, or in --directory, which is kept. --layout-only only writes the machine into the folder, for the flags of the
daemons: sys (--sysfs-root), dev (--dev-root), kubelet (--kubelet-dir), proc (--proc-root of tandem-gpu) and config.json (--config-file
of tandem-rdma).`,
		Example: `  tandem-lab play --machine test/machines/oci-mi300x-derived.txt
  echo 'run train gpu=2 vf=2' | tandem-lab play --machine test/machines/oci-mi300x-derived.txt
  tandem-lab play --machine test/machines/oci-mi300x-derived.txt --vfs 4 --serve :8080
  tandem-lab play --machine my-machine.txt --script pods.txt
  tandem-lab play --machine my-machine.txt --layout-only --directory /tmp/node`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&p.options.Machine, "machine", "",
		"recorded machine, a file of tandem record or tandem qualify")
	cli.CompleteMachines(cmd)
	flags.IntVar(&p.options.VFs, "vfs", 0, fmt.Sprintf("VFs to add to each NIC with RDMA of a machine without "+
		"VFs, at most %d", playground.MostVFs))
	flags.StringVar(&p.options.Directory, "directory", "", "empty or new folder for the machine, the files of "+
		"the kubelet and the logs of the daemons (default a temporary folder that is removed at the end)")
	flags.StringVar(&p.options.Programs, "programs", "", "folder with tandem, tandem-gpu and tandem-rdma "+
		"(default the folder of tandem-lab)")
	flags.StringVar(&p.script, "script", "", "file with commands (default standard input)")
	flags.StringVar(&p.serve, "serve", "", "also serve the live page of tandem status at this address, "+
		"HOST:PORT; the default host is 127.0.0.1, and port 0 selects a free port")
	flags.BoolVar(&p.layOut, "layout-only", false, "write the machine into --directory and start nothing")
	return cmd
}

func (p *player) run(cmd *cobra.Command) (err error) {
	if err := p.check(runtime.GOOS); err != nil {
		return err
	}
	in, interactive, err := p.input(cmd.InOrStdin())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	listener, err := p.listen() // before the folder is filled
	if err != nil {
		return err
	}
	ground, err := playground.Open(p.options)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	if p.layOut {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), ground.Dir)
		return err
	}
	defer func() { err = errors.Join(err, ground.Close()) }()
	end := p.page(ctx, cmd, ground, listener)
	defer func() { err = errors.Join(err, end()) }()
	if err := ground.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // ended by a signal, as at the prompt
		}
		return err
	}
	if note := ground.Note(); note != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
	}
	if interactive {
		fmt.Fprint(cmd.OutOrStdout(), ground.Introduction())
	}
	if interactive && p.serve == "" {
		fmt.Fprintf(cmd.OutOrStdout(), "The live page, from another terminal:\n  %s\n", ground.PageCommand())
	}
	prompt := playground.Prompt{
		In: in, Out: cmd.OutOrStdout(), Errors: cmd.ErrOrStderr(), Interactive: interactive,
		Stay:   p.serve != "" && p.script != "",
		Tandem: func(ctx context.Context, args ...string) error { return p.tandem(ctx, cmd, args) },
	}
	return prompt.Run(ctx, ground)
}

// noPage is the listener without --serve.
type noPage struct{ net.Listener }

// Close implements net.Listener.
func (noPage) Close() error { return nil }

// listen opens the port of --serve.
func (p *player) listen() (net.Listener, error) {
	if p.serve == "" {
		return noPage{}, nil
	}
	return coordinator.ListenPage(p.serve)
}

// page serves the page of --serve in the background. The function that it returns ends the page.
func (p *player) page(
	ctx context.Context, cmd *cobra.Command, ground *playground.Playground, listener net.Listener,
) (end func() error) {
	if p.serve == "" {
		return listener.Close
	}
	coordinator.AnnouncePage(cmd.OutOrStdout(), cmd.ErrOrStderr(), listener)
	v := &coordinator.Viewer{
		Folders: coordinator.Folders{RunDir: ground.RunDir(), KubeletDir: ground.KubeletDir()},
		From:    machine.Source{SysfsRoot: ground.SysfsRoot()}, Title: ground.Title(),
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- v.Serve(ctx, listener) }()
	return func() error { stop(); return <-ended }
}

// check checks the flags, and completes the folder of the programs.
func (p *player) check(system string) (err error) {
	switch {
	case system != "linux":
		return fmt.Errorf("the plugins need Linux, not %s; run the command on a Linux computer", system)
	case p.options.Machine == "":
		return cli.NewUsageError("want a recorded machine: --machine FILE")
	case p.options.VFs < 0 || p.options.VFs > playground.MostVFs:
		return cli.NewUsageError("--vfs %d: want 0 to %d", p.options.VFs, playground.MostVFs)
	case p.layOut && p.options.Directory == "":
		return cli.NewUsageError("--layout-only needs --directory")
	case p.layOut && p.serve != "":
		return cli.NewUsageError("--layout-only and --serve exclude each other")
	case p.layOut:
		return nil
	case p.options.Programs != "":
		p.options.Programs, err = filepath.Abs(p.options.Programs)
		if err != nil {
			return fmt.Errorf("find the folder of --programs: %w", err)
		}
		return nil
	}
	program, err := os.Executable()
	if err == nil {
		program, err = filepath.EvalSymlinks(program)
	}
	if err != nil {
		return fmt.Errorf("find the folder of tandem-lab: %w; name it with --programs", err)
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

// tandem runs a command of the program tandem with the output of play's. Findings are a success, and a wrong
// command line is an error of the script.
func (p *player) tandem(ctx context.Context, cmd *cobra.Command, args []string) error {
	asked := exec.CommandContext(ctx, filepath.Join(p.options.Programs, "tandem"),
		append([]string{"--" + cli.Colour, cli.ColourMode(cmd)}, args...)...)
	var out, problems bytes.Buffer
	asked.Stdout, asked.Stderr = &out, &problems
	if writer, ok := cmd.OutOrStdout().(*cli.PrintableWriter); ok {
		if file, _ := writer.Terminal(); file != nil {
			asked.Stdout = file // with the width and the colours of the terminal
		}
	}
	err := asked.Run()
	fmt.Fprint(cmd.OutOrStdout(), out.String())
	notes, reason, _ := strings.Cut("\n"+problems.String(), "\ntandem "+args[0]+": ")
	fmt.Fprint(cmd.ErrOrStderr(), strings.TrimPrefix(notes, "\n"))
	reason, _, _ = strings.Cut(strings.TrimSuffix(reason, "\n"), "; see tandem ")
	var ended *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &ended) || ended.ExitCode() < 0:
		return fmt.Errorf("run tandem %s: %w", args[0], err)
	case ended.ExitCode() == cli.ExitError:
		return errors.New(reason)
	case ended.ExitCode() == cli.ExitUsage:
		return playground.MistakeError{Err: errors.New(reason)}
	default:
		return nil // findings
	}
}
