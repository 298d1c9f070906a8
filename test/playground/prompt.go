// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/test/playground/kubelet"
)

// errUsage means that the words of a command are wrong.
var errUsage = errors.New("wrong words")

// MistakeError is a wrong command: not the failure that a script expects.
type MistakeError struct{ Err error }

func (e MistakeError) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e MistakeError) Unwrap() error { return e.Err }

// endedError is the unexpected end of a daemon: no command fails as a script wants it.
type endedError struct{ error }

// errQuit ends the prompt.
var errQuit = errors.New("quit")

// command is a command of the prompt.
type command struct {
	name, words, about string
	run                func(p *Playground, ctx context.Context, words []string) (string, error)
	note               string // shown before a command that takes long; "" for none
}

// Tandem runs a command of tandem with its arguments. A wrong command line is a MistakeError.
type Tandem func(ctx context.Context, args ...string) error

// Prompt reads commands and shows their results.
type Prompt struct {
	In          io.Reader
	Out, Errors io.Writer
	Interactive bool   // a failed command does not end the prompt
	Stay        bool   // the end of the input does not end the prompt
	Tandem      Tandem // for the commands that ask the node
}

// commands returns the commands, in the order of the help.
func commands() []command {
	return []command{
		{name: "run", words: "POD [gpu=N] [vf=N] [required]", run: (*Playground).run,
			about: "admit a pod and verify its pairs; required: a pod without near pairs is rejected"},
		{name: "delete", words: "POD", about: "end a pod", run: (*Playground).delete},
		{name: "list", about: "list the pods", run: (*Playground).list},
		{name: "verify", words: "POD", run: (*Playground).verify,
			about: "verify the pairs as tandem verify does in the pod; fails if a pair is not near"},
		{name: "env", words: "POD", about: "show the variables, device nodes and mounts of a pod",
			run: (*Playground).env},
		{name: "fail", words: "DEVICE", run: (*Playground).fail,
			about: "end the link of a NIC, of a VF's NIC too; let a GPU report fatal PCIe errors"},
		{name: "degrade", words: "DEVICE", run: (*Playground).degrade,
			about: "reduce the PCIe link of a GPU or NIC to one lane"},
		{name: "heal", words: "DEVICE...", run: (*Playground).heal,
			about: "end the faults of GPUs and NICs, and wait until the plugins see them as good, a minute later",
			note:  "the plugins wait for a minute after the last fault"},
		{name: "restart", words: "gpu|rdma|kubelet", about: "restart tandem-gpu, tandem-rdma or the kubelet",
			run: (*Playground).restart},
	}
}

// asked are the commands of tandem that ask the node, with their flags for the playground.
var asked = []struct {
	name, words, about string
	flags              func(p *Playground, words []string) []string
}{
	{"status", "[FLAGS]", "tandem status", func(p *Playground, _ []string) []string {
		f := p.Flags()
		return []string{f.Run, f.Kubelet, f.Sysfs}
	}},
	{"explain", "[POD] [FLAGS]", "tandem explain", (*Playground).explainFlags},
	{"topo", "[FLAGS]", "tandem topo", func(p *Playground, _ []string) []string {
		return []string{p.Flags().Sysfs}
	}},
	{"doctor", "[FLAGS]", "tandem doctor", placesOfNode},
	{"qualify", "[FLAGS]", "tandem qualify", placesOfNode},
}

func placesOfNode(p *Playground, _ []string) []string {
	f := p.Flags()
	return []string{f.Run, f.Kubelet, f.Sysfs, f.Dev, f.Proc, f.Config}
}

// isFile reports whether a word is a flag for a file in place of the node.
func isFile(word string) bool {
	name, _, _ := strings.Cut(word, "=")
	return name == "--machine" || name == "--check"
}

// explainFlags returns the flags of tandem explain, with the UID of the pod: the decisions for ended pods of
// the name are not those of the present pod.
func (p *Playground) explainFlags(words []string) []string {
	flags := []string{p.Flags().Run, p.Flags().Kubelet}
	for _, word := range words {
		if uid, known := p.kubelet.UID(strings.TrimPrefix(word, kubelet.Namespace+"/")); known {
			flags = append(flags, "--uid="+uid)
		}
	}
	return flags
}

// Run executes the commands of the input until its end, quit, or ctx is done. Unless the prompt is
// interactive, it shows each command, and ends at the first one that fails. A command after "!" has to fail,
// and must not be a mistake.
func (r *Prompt) Run(ctx context.Context, p *Playground) error {
	lines, failed := r.lines(ctx)
	for number := 1; ; number++ {
		if r.Interactive {
			fmt.Fprint(r.Out, "> ")
		}
		var line string
		var more bool
		select {
		case line, more = <-lines:
		case <-ctx.Done():
			return nil
		}
		if !more {
			err := failed()
			if err == nil && r.Stay {
				<-ctx.Done()
			}
			return err
		}
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if !r.Interactive {
			fmt.Fprintln(r.Out, "> "+line)
		}
		switch err := r.execute(ctx, p, line); {
		case errors.Is(err, errQuit) || ctx.Err() != nil:
			return nil
		case err != nil && r.Interactive:
			fmt.Fprintln(r.Errors, err)
		case err != nil:
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
}

// lines reads the input in the background, because a read cannot be ended. The error is that of the input,
// once the lines are closed.
func (r *Prompt) lines(ctx context.Context) (<-chan string, func() error) {
	lines := make(chan string)
	scanner := bufio.NewScanner(r.In)
	go func() {
		defer close(lines)
		for scanner.Scan() {
			select {
			case lines <- scanner.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines, func() error {
		if err := scanner.Err(); err != nil {
			return fmt.Errorf("read commands: %w", err)
		}
		return nil
	}
}

// execute executes a line.
func (r *Prompt) execute(ctx context.Context, p *Playground, line string) error {
	line, fails := strings.CutPrefix(line, "!")
	words := strings.Fields(line)
	if len(words) == 0 {
		return MistakeError{errors.New(`want a command after "!"`)}
	}
	text, err := r.command(ctx, p, words)
	if _, writeErr := io.WriteString(r.Out, text); writeErr != nil {
		return fmt.Errorf("show the result: %w", writeErr)
	}
	var ended endedError
	var mistake MistakeError
	switch {
	case !fails || errors.Is(err, errQuit) || errors.As(err, &ended) || errors.As(err, &mistake):
		return err
	case err == nil:
		return fmt.Errorf("%s: it succeeded", strings.TrimSpace(line))
	default:
		fmt.Fprintln(r.Out, err)
		return nil
	}
}

// command executes a command and returns its output, unless the command has shown it.
func (r *Prompt) command(ctx context.Context, p *Playground, words []string) (string, error) {
	name, rest := words[0], words[1:]
	switch name {
	case "quit", "exit":
		return "", errQuit
	case "help":
		return help(), nil
	}
	for _, a := range asked {
		if a.name == name {
			flags := a.flags(p, rest)
			if slices.ContainsFunc(rest, isFile) {
				flags = nil
			}
			return "", r.Tandem(ctx, slices.Concat([]string{name}, flags, rest)...)
		}
	}
	for _, c := range commands() {
		if c.name != name {
			continue
		}
		if err := p.ended(); err != nil && name != "restart" {
			return "", endedError{err}
		}
		if c.note != "" && r.Interactive {
			fmt.Fprintln(r.Errors, c.note)
		}
		text, err := c.run(p, ctx, rest)
		if errors.Is(err, errUsage) {
			err = MistakeError{fmt.Errorf("want %s", strings.TrimSpace(c.name+" "+c.words))}
		}
		return text, err
	}
	return "", MistakeError{fmt.Errorf("unknown command %q; help lists the commands", name)}
}

// help lists the commands.
func help() string {
	var rows cli.Text
	for _, c := range commands() {
		rows.Row(c.name+" "+c.words, c.about)
	}
	for _, a := range asked {
		rows.Row(a.name+" "+a.words, a.about)
	}
	rows.Row("quit", "end the playground, like the end of the input or Ctrl-C")
	return rows.String()
}
