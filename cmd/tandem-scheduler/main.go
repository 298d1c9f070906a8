// SPDX-License-Identifier: Apache-2.0

// Command tandem-scheduler is kube-scheduler with the plugin Tandem in: no pod is sent where the kubelet will
// refuse it, and a pod goes where its GPUs and VFs share switches.
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
