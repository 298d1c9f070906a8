// SPDX-License-Identifier: Apache-2.0

package plane

import (
	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StartDeployed starts a scheduler from applied manifests: with the configuration in the ConfigMap of its
// name, and as the service account of its name.
func (p *Plane) StartDeployed(name string, flags ...string) {
	p.t.Helper()
	ctx, core := p.t.Context(), p.Client(p.Admin()).CoreV1()
	configuration, err := core.ConfigMaps(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	token, err := core.ServiceAccounts(metav1.NamespaceSystem).CreateToken(ctx, name,
		&authentication.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	p.StartSchedulerFrom(name, configuration.Data["config.yaml"], p.Kubeconfig(token.Status.Token), flags...)
}
