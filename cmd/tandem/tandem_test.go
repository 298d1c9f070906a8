// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination/version"
	"github.com/tandem-k8s/tandem/test/machines"
)

// run runs tandem.
func run(args ...string) (code int, stdout, stderr string) {
	var out, problems bytes.Buffer
	code = cli.Execute(newRoot(), args, &out, &problems)
	return code, out.String(), problems.String()
}

// succeed runs tandem and returns its output.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := run(args...)
	if code != cli.ExitOK || stderr != "" {
		t.Fatalf("tandem %s: exit code %d, standard error %q", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

// recorded is a file in the repository.
func recorded(machine string) string { return "../../test/machines/" + machine + ".txt" }

// withVFs writes a machine with VFs into a file.
func withVFs(t *testing.T, machine string, perPF int) string {
	t.Helper()
	m, err := machines.Load(machine, perPF)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if _, err := m.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	return write(t, "machine.txt", text.String())
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"topo", "record", "plan", "verify", "doctor"} {
		help := succeed(t, command, "--help")
		for _, want := range []string{
			"Usage:\n  tandem " + command, "Examples:\n  tandem " + command, "lags:\n", "Exit codes:\n  0  success\n",
		} {
			if !strings.Contains(help, want) {
				t.Errorf("tandem %s --help lacks %q:\n%s", command, want, help)
			}
		}
	}
	if help := succeed(t, "doctor", "--help"); !strings.HasSuffix(help, "\n"+doctorExitCodes) {
		t.Errorf("tandem doctor --help does not end with its own exit codes:\n%s", help)
	}
	if help := succeed(t, "topo", "--help"); strings.Contains(help, doctorExitCodes) {
		t.Errorf("tandem topo --help has doctor's exit codes:\n%s", help)
	}
	if overview := succeed(t); !strings.Contains(overview, "  topo        Show the distances") {
		t.Errorf("tandem prints:\n%s", overview)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	oci := recorded("oci-mi300x-derived")
	cut := write(t, "cut.txt", "# tandem machine v1\n[bus/pci/devices]\n0000:00:00.0 -> ../../../dev")
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"guess", 2, `tandem: unknown command "guess"; see tandem --help`},
		{"stauts", 2, `tandem: unknown command "stauts" (did you mean status?); see tandem --help`},
		{"plan --vsf 1", 2, `tandem plan: unknown flag: --vsf (did you mean --vfs?); see tandem plan --help`},
		{"plan -o jso", 2,
			`tandem plan: invalid argument "jso" for "-o, --output" flag: want table, json or svg (did you mean json?); see tandem plan --help`},
		{"topo --machine ../../test/machines/oci-mi300x-dervied.txt", 1,
			`tandem topo: read machine: open ../../test/machines/oci-mi300x-dervied.txt: no such file or directory (did you mean ` +
				oci + `?)`},
		{"plan --gpus 1 --used 0000:11:00.00 --machine " + oci, 1,
			`tandem plan: mark "0000:11:00.00" as used: no such GPU or VF (did you mean 0000:11:00.0?)`},
		{"topo --machine ../../test/machines/oci-mi300x-dervied", 1,
			`tandem topo: read machine: open ../../test/machines/oci-mi300x-dervied: no such file or directory (did you mean ` +
				oci + `?)`},
		{"topo --colour", 2, `tandem topo: unknown flag: --colour (did you mean --color?); see tandem topo --help`},
		{"topo here", 2, `tandem topo: unexpected argument "here"; see tandem topo --help`},
		{"topo -o xml", 2,
			`tandem topo: invalid argument "xml" for "-o, --output" flag: want table, json, svg, nccl or resourceslices; see tandem topo --help`},
		{"topo --machine x --sysfs-root y", 2,
			`tandem topo: --machine and --sysfs-root exclude each other; see tandem topo --help`},
		{"topo --machine none.txt", 1, `tandem topo: read machine: open none.txt: no such file or directory`},
		{"topo --machine main.go", 1,
			`tandem topo: read machine main.go: parse machine file: line 1: not a machine file: want "# tandem machine v1"`},
		{"topo --machine " + cut, 1,
			`tandem topo: read machine ` + cut +
				`: parse machine file: line 3: no line "end N entries" at the end: the file is truncated`},
		{"topo --sysfs-root testdata", 1,
			`tandem topo: read testdata: list PCI devices: open bus/pci/devices: no such file or directory`},
		{"record --sysfs-root testdata", 1,
			`tandem record: read testdata: capture machine: list PCI devices: open bus/pci/devices: no such file or directory`},
		{"plan", 2, `tandem plan: want a number of GPUs, VFs or both: --gpus 1 --vfs 1; see tandem plan --help`},
		{"help topp", 2, `tandem help: unknown command "topp" (did you mean topo?); see tandem help --help`},
		{"plan --gpus -1", 2,
			`tandem plan: invalid argument "-1" for "--gpus" flag: want a whole number, 0 or more; see tandem plan --help`},
		{"plan --gpus 99999999999999999999", 2,
			`tandem plan: invalid argument "99999999999999999999" for "--gpus" flag: the number is too large; see tandem plan --help`},
		{"plan --gpus 18446744073709551615 --machine " + oci, 1,
			`tandem plan: choose 18446744073709551615 GPUs and 0 VFs: 8 GPUs and 8 VFs are free`},
		{"verify --gpus x", 2,
			`tandem verify: invalid argument "x" for "--gpus" flag: want a whole number; see tandem verify --help`},
		{"verify --in-order=x", 2,
			`tandem verify: invalid argument "x" for "--in-order" flag: want true or false; see tandem verify --help`},
		{"doctor --gpu-vendor nvida", 2, `tandem doctor: invalid argument "nvida" for "--gpu-vendor" flag: want ` +
			`amd, nvidia or auto (did you mean nvidia?); see tandem doctor --help`},
		{"plan --gpus 9 --vfs 1 --machine " + oci, 1,
			`tandem plan: choose 9 GPUs and 1 VF: 8 GPUs and 8 VFs are free`},
		{"plan --vfs 8 --used 0000:0c:00.0 --machine " + oci, 1,
			`tandem plan: choose 0 GPUs and 8 VFs: 8 GPUs and 7 VFs are free`},
		{"plan --vfs 8 --used 0c:00.0 --machine " + oci, 1,
			`tandem plan: choose 0 GPUs and 8 VFs: 8 GPUs and 7 VFs are free`},
		{"plan --gpus 1 --used 0000:07:00.0 --machine " + oci, 1,
			`tandem plan: mark "0000:07:00.0" as used: no such GPU or VF`},
		{"completion", 2, `tandem completion: want a shell: bash, fish, powershell or zsh; see tandem completion --help`},
		{"completion bsh", 2, `tandem completion: unknown shell "bsh": want bash, fish, powershell or zsh ` +
			`(did you mean bash or zsh?); see tandem completion --help`},
		{"completion bash more", 2,
			`tandem completion bash: unexpected argument "more"; see tandem completion bash --help`},
		{"help doctr", 2, `tandem help: unknown command "doctr" (did you mean doctor?); see tandem help --help`},
		{"help topo ghost", 2, `tandem help: unknown command "ghost"; see tandem help --help`},
	} {
		code, stdout, stderr := run(strings.Fields(test.args)...)
		if code != test.code || stdout != "" {
			t.Errorf("tandem %s: exit code %d, want %d; standard output %q", test.args, code, test.code, stdout)
		}
		if diff := cmp.Diff(test.want+"\n", stderr); diff != "" {
			t.Errorf("tandem %s: standard error (-want +got):\n%s", test.args, diff)
		}
	}
}

// TestCompletionHelp: the help names the command, the command the shells.
func TestCompletionHelp(t *testing.T) {
	t.Parallel()
	if help := succeed(t, "--help"); !strings.Contains(help, "source <(tandem completion bash)") ||
		!strings.Contains(help, "\n  completion  Print the completion for a shell\n") {
		t.Errorf("tandem --help does not tell how to load the completion:\n%s", help)
	}
	help := succeed(t, "completion", "--help")
	for _, want := range []string{
		"completion bash", "completion zsh", "completion fish", "kubectl_complete-tandem",
		"package bash-completion",
	} {
		if !strings.Contains(help, want) {
			t.Errorf("tandem completion --help lacks %q:\n%s", want, help)
		}
	}
	if _, help, _ := plugin("none", "--help"); !strings.Contains(help, "kubectl_complete-tandem") ||
		strings.Contains(help, "\n  completion ") {
		t.Errorf("kubectl tandem --help:\n%s", help)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if script := succeed(t, "completion", shell); !strings.Contains(script, "__complete") {
			t.Errorf("tandem completion %s prints\n%s", shell, script)
		}
	}
}

// TestHelpFlags: the help page of a command lists each flag once.
func TestHelpFlags(t *testing.T) {
	t.Parallel()
	for _, cmd := range newRoot().Commands() {
		if cmd.Hidden {
			continue
		}
		help := succeed(t, cmd.Name(), "--help")
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			line := regexp.MustCompile(`(?m)^ +(?:-\w, )?--` + f.Name + `(?: |$)`)
			if n := len(line.FindAllString(help, -1)); n != 1 {
				t.Errorf("tandem %s --help has --%s %d times", cmd.Name(), f.Name, n)
			}
		})
	}
}

// TestVersion: the common version, in the daemons' format.
func TestVersion(t *testing.T) {
	t.Parallel()
	for as, more := range map[string]bool{"--version": false, "version": true} {
		first, rest, _ := strings.Cut(succeed(t, as), "\n")
		goes := "\ngo        " + runtime.Version() + "\n"
		if first != "tandem "+version.Text() || strings.Contains(rest, goes) != more {
			t.Errorf("tandem %s prints %q and %q", as, first, rest)
		}
		_, out, _ := plugin("none", as)
		if first, _, _ = strings.Cut(out, "\n"); first != "kubectl-tandem "+version.Text() {
			t.Errorf("kubectl tandem %s prints %q", as, first)
		}
	}
	validate(t, "version", succeed(t, "version", "-o", "json"))
}
