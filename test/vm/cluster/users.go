// SPDX-License-Identifier: Apache-2.0

package cluster

import "fmt"

// NodeName is the node's.
const NodeName = "node"

// Tokens of the users; others cannot reach the API server.
const (
	adminToken     = "admin"
	nodeToken      = "node"
	schedulerToken = "scheduler"
	managerToken   = "manager"
)

const tokens = adminToken + `,admin,1,"system:masters"
` + nodeToken + `,system:node:` + NodeName + `,2,"system:nodes"
` + schedulerToken + `,system:kube-scheduler,3
` + managerToken + `,system:kube-controller-manager,4
`

func kubeconfig(server, token string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: vm, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: vm, user: {token: %s}}]
contexts: [{name: vm, context: {cluster: vm, user: vm}}]
current-context: vm
`, server, token)
}

// NodeKubeconfig returns the kubeconfig of the node's kubelet.
func NodeKubeconfig() string { return kubeconfig("https://10.0.2.2", nodeToken) }
