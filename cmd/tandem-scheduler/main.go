// SPDX-License-Identifier: Apache-2.0

// Command tandem-scheduler is kube-scheduler with the plugin Tandem: it avoids nodes whose kubelet would
// refuse the pod, and prefers nodes on which the pod's GPUs and VFs share switches.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // the log format "json"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of the client
	_ "k8s.io/component-base/metrics/prometheus/version"  // the metric of the version
)

func main() {
	os.Exit(cli.Run(newCommand()))
}
