// SPDX-License-Identifier: Apache-2.0

// Command tandem is for people: it shows how a node's GPUs and NICs lie to each other, records a machine, and
// tells what the plugins would choose. It needs no privilege, no cluster and no running plugin.
// Under the name kubectl-tandem it is a plugin of kubectl, which asks the nodes of a cluster.
package main

import (
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

func main() {
	klog.SetLogger(logr.Discard()) // of client-go: what people need to know is in the errors that it returns
	root, args := program(os.Args)
	os.Exit(execute(root, args, os.Stdout, os.Stderr))
}
