// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/cli"
)

func newRoot() *cobra.Command {
	root := cli.Rooted(&cobra.Command{
		Use:   "tandem",
		Short: "Show, record and plan GPUs and RDMA VFs on the same PCIe switch",
		Long: `Show, record and plan GPUs and RDMA VFs on the same PCIe switch.

"tandem completion SHELL" prints the completion of commands, flags and values for bash, zsh, fish or powershell; to load it in bash:
source <(tandem completion bash)`,
		Annotations: map[string]string{cli.AboutCompletion: ` The packages install it for bash, zsh and fish.
bash needs the package bash-completion. kubectl completes "kubectl tandem" by itself, if kubectl_complete-tandem, a link to
tandem, is in PATH.`},
	})
	root.AddCommand(newTopo(), newRecord(), newQualify(), newPlan(), newStatus(), newExplain(), newVerify(),
		newDoctor(), newVersion(), newMoved("play"), newMoved("simulate"))
	return root
}
