// SPDX-License-Identifier: Apache-2.0

// Command tandem is for people: it shows the distances of a node's GPUs and NICs, records a machine, and
// predicts the plugins' choices. It needs no privilege, no cluster and no running plugin. Under the name
// kubectl-tandem it is a kubectl plugin that queries the nodes of a cluster.
package main

import (
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/tandem-k8s/tandem/cmd/internal/cli"
)

func main() {
	klog.SetLogger(logr.Discard()) // of client-go, whose errors have all that users need
	root, args := program(os.Args)
	os.Exit(cli.Execute(root, args, os.Stdout, os.Stderr))
}
